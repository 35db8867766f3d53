"""Pictures a second and peak memory: files decoded once into a memory map, and torch's DataLoader with our decoder.

    python benchmarks/speed/streaming.py [--pictures 100000] [--side 256] [--workers 0,1,2,4] [--rounds 1]
    python benchmarks/speed/streaming.py --resident [--pictures 9991] [--side 227] [--steps 60]

Made JPEGs in a folder, in tar shards and in Parquet. `first` reads, checks and decodes all of them as `load_dataset`
does, into an empty cache; `next` draws all of them once more at random, as training does. A DataLoader decodes at every
pass, in the best of its numbers of workers. Each way is a process of its own; they take turns. Peak memory is that of
a process and its workers together, without the pages of files that the system keeps, such as those of a memory map.

`--resident` compares ResNet-18's steps (three domains of 32 images, plain SGD) with images from the memory map,
gathered ahead of the device, and with images that are on the device. The images are noise: it is their size that
counts.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

DOMAINS, CLASSES, SHARD, STORED, BATCH = 3, 4, 2500, 224, 96
KINDS = {"folder": "folder", "tar": "shards", "parquet": "table"}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("pictures", 100_000), ("side", 256), ("steps", 60), ("rounds", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--workers", default="0,1,2,4", help="of a DataLoader")
    parser.add_argument("--folder", type=Path, help="for the pictures and the cache; a temporary one")
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


# Decoding -------------------------------------------------------------------------------------------------------------


def make_picture(number: int, side: int) -> bytes:
    """Make a JPEG of some 20 kB, with shapes and some noise, as photographs have."""
    draw = np.random.default_rng(number)
    coarse = Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    noise = draw.normal(0, 12, (side, side, 1))
    pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def write_pictures(top: Path, pictures: int, side: int) -> None:
    """Write the same pictures three times. A few hundred are made, and each is there many times."""
    import pyarrow as pa
    from pyarrow import parquet

    made = [make_picture(i, side) for i in range(min(pictures, 500))]
    for kind in KINDS.values():
        (top / kind).mkdir()
    for first in range(0, pictures, SHARD):
        rows = [
            (f"d{i % DOMAINS}", f"c{i // DOMAINS % CLASSES}", i) for i in range(first, min(first + SHARD, pictures))
        ]
        with tarfile.open(top / "shards" / f"{first:07}.tar", "w") as tar:
            for domain, label, i in rows:
                path = top / "folder" / domain / label / f"{i:07}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(made[i % len(made)])
                tar.add(path, f"{domain}/{label}/{i:07}.jpg")
        cells = [{"bytes": made[i % len(made)], "path": None} for *_, i in rows]
        table = pa.table({"image": cells, "label": [r[1] for r in rows], "domain": [r[0] for r in rows]})
        parquet.write_table(table, top / "table" / f"{first:07}.parquet", row_group_size=500)


class Files(torch.utils.data.Dataset[Tensor]):
    """Pictures of a folder, as a DataLoader's workers decode them."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Tensor:
        from seqdg.data import decode

        return torch.from_numpy(decode(self.files[i].read_bytes(), STORED))


def measure_pass(way: str, top: Path) -> tuple[float, int]:
    """Return the seconds of a pass over all pictures, and how many there are."""
    kind, _, number = way.partition(":")
    if kind == "loader":
        files = Files(top / "folder")
        loader = torch.utils.data.DataLoader(files, BATCH, shuffle=True, num_workers=int(number))
        began = time.perf_counter()
        seen = sum(len(batch) for batch in loader)
        return time.perf_counter() - began, seen
    from seqdg.data import DataSpec, load_dataset
    from seqdg.training.inputs import prefetch

    began = time.perf_counter()
    dataset = load_dataset(DataSpec("made", path=(KINDS[kind],), size=STORED), top)
    if number == "first":
        return time.perf_counter() - began, len(dataset.y)
    order = torch.randperm(len(dataset.y))
    began = time.perf_counter()
    seen = sum(len(batch) for batch in prefetch(dataset.x, iter(order.split(BATCH))))
    return time.perf_counter() - began, seen


def measure_memory(process: int) -> int:
    """Return the bytes of a process and its children that are no pages of files."""
    total, waiting = 0, [process]
    while waiting:
        one = waiting.pop()
        try:
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines())
            total += 1024 * sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, KeyError, ValueError):  # it has ended
            continue
    return total


def run_way(way: str, top: Path, cache: Path) -> tuple[float, float]:
    """Return pictures a second and the peak memory in MiB, of a process of its own."""
    words = [sys.executable, __file__, "--folder", str(top), "--way", way]
    peak, environment = 0, {**os.environ, "SEQDG_CACHE": str(cache)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        done = threading.Event()
        waits = threading.Thread(target=lambda: (process.wait(), done.set()))
        waits.start()
        while not done.wait(0.1):
            peak = max(peak, measure_memory(process.pid))
        assert process.stdout is not None
        seconds, seen = process.stdout.read().split()
    return int(seen) / float(seconds), peak / 2**20


def compare_loaders(options: argparse.Namespace, top: Path) -> None:
    began = time.perf_counter()
    write_pictures(top, options.pictures, options.side)
    print(f"{options.pictures:,} JPEGs of {options.side} px, made in {time.perf_counter() - began:.0f} s", flush=True)
    ways = [
        *(f"loader:{n}" for n in options.workers.split(",")),
        *(f"{k}:{n}" for k in KINDS for n in ("first", "next")),
    ]
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    memory: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(options.rounds):
        for way in ways:
            # A cache for each kind and turn, which the first pass fills and the next ones read.
            speed, peak = run_way(way, top, top / f"cache-{way.partition(':')[0]}-{turn}")
            speeds[way].append(speed)
            memory[way].append(peak)
    best = max(median(values) for way, values in speeds.items() if way.startswith("loader"))
    for way in ways:
        speed = median(speeds[way])
        print(
            f"  {way:16} {speed:8.0f} pictures/s  {speed / best:5.2f} x  peak {max(memory[way]):6.0f} MiB", flush=True
        )


# Steps from a memory map ----------------------------------------------------------------------------------------------


def write_noise(path: Path, images: int, side: int) -> np.ndarray:
    mapped = np.lib.format.open_memmap(path, "w+", np.uint8, (images, 3, side, side))
    for start in range(0, images, 512):
        block = mapped[start : start + 512]
        block[:] = np.random.default_rng(start).integers(0, 256, block.shape, dtype=np.uint8)
    mapped.flush()
    return np.load(path, mmap_mode="r")


def measure_step(net: nn.Module, batches: Iterator[Tensor], device: torch.device) -> float:
    optimizer, y = torch.optim.SGD(net.parameters(), lr=1e-3), torch.arange(96, device=device) % 7
    began, steps = time.perf_counter(), 0
    for x in batches:
        loss = nn.functional.cross_entropy(net(x.float().div_(255).contiguous(memory_format=torch.channels_last)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / steps


def compare_steps(options: argparse.Namespace, top: Path) -> None:
    from seqdg.nets import resnet18
    from seqdg.training.inputs import gather_rows, move_to_device, prefetch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    net = resnet18(7).to(device, memory_format=torch.channels_last)
    x = write_noise(top / "x.npy", options.pictures, options.side)
    there = move_to_device(x, device)
    draws = torch.Generator().manual_seed(0)
    times: dict[str, list[float]] = {}
    for _ in range(max(5, options.rounds) + 1):
        rows = [torch.randint(options.pictures, (96,), generator=draws) for _ in range(options.steps)]
        ways = {
            "resident": (gather_rows(there, r, device) for r in rows),
            "streamed": prefetch(x, rows, device),
            "not ahead": (gather_rows(x, r, device) for r in rows),
        }
        for name, batches in ways.items():
            times.setdefault(name, []).append(measure_step(net, batches, device))
    base = median(times["resident"][1:])  # the first round warms up
    for name, values in times.items():
        took = median(values[1:])
        print(f"{name:10} {1e3 * took:8.2f} ms per step  {took / base:5.2f} x resident")


def main() -> None:
    options = parse_options()
    if options.way:
        print(*measure_pass(options.way, options.folder))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        (compare_steps if options.resident else compare_loaders)(options, Path(folder))


if __name__ == "__main__":
    main()
