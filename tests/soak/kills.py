"""Kill runs at random moments, let each go on to its end, and compare it byte for byte with an undisturbed one.

    PYTHONPATH=src:tests python tests/soak/kills.py --kills 300 --out FOLDER

FOLDER/kills.jsonl has a line for every case that is done; the same command goes on after the last of them. A case is
known by its number: what is killed, when and how follow from it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save_file

from seqdg.base import UsageError
from seqdg.cli import main
from seqdg.nets import NetSpec, build_net
from seqdg.results import Store, is_locked

MOST = 9  # kills of one run
BENCH = ["bench", "--algorithms", "agg,fo-s-mldg", "--held-out", "0", "--trials", "2", "--steps", "120"]
BENCH += ["--checkpoint", "0.1", "--device", "cpu"]
SHARDS = [*BENCH, "--save-weights", "--workers", "0", "--shard"]
FIT = ["fit", "table.csv", "--label", "ill", "--domain", "site", "--choose", "--candidates", "agg,logistic"]
FIT += ["--steps", "60", "--hidden", "8", "--members", "1", "--seeds", "1", "--device", "cpu"]
WRITES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "sqlite3.connect")  # what Python tells hooks of


@dataclass(frozen=True)
class Kind:
    """What is killed. words: the command.   target: which of its processes; `itself`: between two things it writes."""

    words: list[str]
    target: str
    output: str
    compare: Callable[[Path], Any]


def read_run(name: str, folder: Path) -> Any:
    records = Store.open(folder / name).records()
    told = sorted((r.key, r.status, r.weights, repr(r.history), r.losses) for r in records)
    files = {p.name: p.read_bytes() for p in sorted((folder / name / "weights").glob("*"))}
    left = [p.name for p in (folder / name / "checkpoints").glob("*")]
    return told, files, left, call(folder, ["table", name, "--format", "json"], "table.json")


def read_files(name: str, folder: Path) -> Any:
    """Read all that lies in a folder, such as a model with its members."""
    below = folder / name
    return {str(p.relative_to(below)): p.read_bytes() for p in sorted(below.rglob("*")) if p.is_file()}


def read_model(name: str, folder: Path) -> dict[str, Any]:
    """Return all that a model holds, without the times that its candidates took."""
    files: dict[str, Any] = read_files(name, folder)
    for path in [path for path in files if Path(path).name == "model.json"]:
        about = json.loads((folder / name / path).read_bytes())
        for candidate in about.get("facts", {}).get("comparison", {}).get("candidates", ()):
            candidate["fit_seconds"] = candidate["predict_seconds"] = 0.0
        files[path] = {key: value for key, value in about.items() if key != "sha256"}
    return files


def read_features(folder: Path) -> Any:
    """Read what was extracted and what is kept of it; half a file of the cache goes after ten minutes."""
    kept = {name: data for name, data in read_files("cache/features", folder).items() if not name.endswith(".part")}
    return (folder / "pictures.safetensors").read_bytes(), kept


SAVING = [*BENCH, "--save-weights", "--out", "run", "--workers"]
FITTING = [*FIT, "--workers", "0", "--out", "model"]
MERGING = ["merge", "shards/shard-1-of-2", "shards/shard-2-of-2", "--out", "merged"]
EXTRACTING = ["features", "pictures", "--net", "resnet18", "--weights", "../whole/net.safetensors", "--size", "32"]
EXTRACTING += ["--batch", "16", "--out", "pictures.safetensors", "--force"]
the_run, the_model, the_pack = partial(read_run, "run"), partial(read_model, "model"), partial(read_files, "packed")
KINDS = {
    "parent, alone": Kind([*SAVING, "0"], "parent", "run", the_run),
    "parent of workers": Kind([*SAVING, "2"], "parent", "run", the_run),
    "a worker": Kind([*SAVING, "2"], "worker", "run", the_run),
    "whole group": Kind([*SAVING, "2"], "group", "run", the_run),
    "while it writes": Kind([*SAVING, "0"], "itself", "run", the_run),
    "fit --choose": Kind(FITTING, "parent", "model", the_model),
    "fit while it writes": Kind(FITTING, "itself", "model", the_model),
    "pack": Kind(["pack", "source", "--out", "packed", "--force"], "itself", "packed", the_pack),
    "merge": Kind(MERGING, "itself", "merged", partial(read_run, "merged")),
    "features": Kind(EXTRACTING, "itself", "pictures", read_features),
}
SHARES = (5, 2, 2, 3, 8, 3, 8, 4, 4, 4)


def start(folder: Path, words: list[str], output: str = "said.txt", kill_at: int = 0) -> int:
    """Run a command in a process of its own, forked from this one, which has all imported. Return its id.

    kill_at: the number of the event of writing at which it kills itself; 0: never, and they are counted in `events`.
    """
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ["SEQDG_CACHE"] = str(folder / "cache")
        sys.argv = ["seqdg", *words]
        count = [0]
        sys.addaudithook(_make_hook(folder, kill_at, count))
        with Path(output).open("w") as said, redirect_stdout(said), redirect_stderr(said):
            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:
                traceback.print_exc()
        if not kill_at:
            Path("events").write_text(str(count[0]))
    finally:
        os._exit(code)


def _make_hook(folder: Path, kill_at: int, count: list[int]) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in WRITES or "said.txt" in str(arguments[0]):
            return
        if event == "open" and not (isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")):
            return
        where = Path(str(arguments[0]))
        if not where.is_absolute() or folder in where.parents:
            count[0] += 1
            if count[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def wait(pid: int, seconds: float = 300.0) -> int:
    """Wait for the end of a process; what is left of its group goes with it."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise TimeoutError(f"no end after {seconds:g} s")
        time.sleep(0.005)


def call(folder: Path, words: list[str], output: str = "said.txt") -> str:
    code = wait(start(folder, words, output))
    said = (folder / output).read_text()
    assert code == 0, f"{words} ended with {code}: {said}"
    return said


def list_children(pid: int) -> list[int]:
    """List the workers of a process: those that `multiprocessing` spawned, and not its tracker of resources."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [c for c in map(int, children) if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def kill_once(folder: Path, whole: Path, name: str, draw: random.Random) -> bool:
    """Start the command, and kill what the kind says at a random moment. Return whether that was before its end."""
    kind = KINDS[name]
    if kind.target == "itself":
        most = int((whole / f"{name}.events").read_text())
        return wait(start(folder, kind.words, kill_at=draw.randint(1, most))) == -signal.SIGKILL
    pid = start(folder, kind.words)
    began, moment = time.monotonic(), draw.uniform(0.0, 3.0) if draw.random() < 0.8 else draw.uniform(0.0, 0.5)
    directory = folder / ("run" if kind.output == "run" else f"{kind.output}.partial")
    while not is_locked(directory) and time.monotonic() - began < 60 and draw.random() < 0.999:
        time.sleep(0.005)
        if _has_ended(pid):
            break
    time.sleep(moment if kind.target != "worker" else 0.0)
    try:
        if kind.target == "group":
            os.killpg(pid, signal.SIGKILL)
        elif kind.target == "worker":
            until = time.monotonic() + 60
            while not (workers := list_children(pid)) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(moment)
            workers = list_children(pid) or workers
            os.kill(draw.choice(workers), signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError, IndexError):
        pass
    code = wait(pid)
    if kind.target == "worker":
        assert code == 0, (folder / "said.txt").read_text()
        return True
    return code == -signal.SIGKILL


def _has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def fill(folder: Path, whole: Path) -> None:
    """Write what the commands read."""
    folder.mkdir(parents=True)
    rows = [f"{i * 37 % 101},{i * 53 % 97},{(i * 37 % 101 + i * 53 % 97) % 2},{'abc'[i % 3]}" for i in range(240)]
    (folder / "table.csv").write_text("\n".join(["x,y,ill,site", *rows]) + "\n")
    draw = random.Random(0)
    for i in range(300):
        path = folder / f"pictures/{'abc'[i % 3]}/{'xy'[i % 2]}/{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.frombytes("RGB", (8, 8), draw.randbytes(192)).save(path)
    for name, copy in (("run", "source"), ("shards", "shards")):
        if (whole / name).exists():
            shutil.copytree(whole / name, folder / copy)


def make_whole(whole: Path) -> None:
    """Run every command undisturbed."""
    shutil.rmtree(whole, ignore_errors=True)
    fill(whole, whole)
    module = build_net(NetSpec("resnet18"), (3, 32, 32), 2, torch.Generator().manual_seed(0)).module
    save_file(module.state_dict(), whole / "net.safetensors")
    for number in ("1", "2"):
        call(whole, [*SHARDS, f"{number}/2", "--out", "shards"])
    for name, kind in KINDS.items():
        if kind.target == "itself":
            call(whole, kind.words)
            (whole / "events").rename(whole / f"{name}.events")
        if name == "while it writes":
            shutil.copytree(whole / "run", whole / "source")
    assert KINDS["merge"].compare(whole) == KINDS["while it writes"].compare(whole)
    (whole / "ready").touch()


def soak(out: Path, kills: int, seconds: float = float("inf")) -> Iterator[dict[str, Any]]:
    """Do cases until so many kills are done, from the first that is not; yield what is noted of each new one."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    log, whole = out / "kills.jsonl", out / "whole"
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if not (whole / "ready").exists():
        make_whole(whole)
    expected = {name: kind.compare(whole) for name, kind in KINDS.items()}
    total, began = sum(case["kills"] for case in done), time.monotonic()
    while total < kills and time.monotonic() - began < seconds:
        number = len(done)
        draw = random.Random(number)
        (name,) = draw.choices(list(KINDS), SHARES)
        kind, folder = KINDS[name], out / "case"
        shutil.rmtree(folder, ignore_errors=True)
        fill(folder, whole)
        wanted = 2 if kind.target == "worker" else draw.randint(4, MOST)  # a run goes on without a worker
        case: dict[str, Any] = {"case": number, "kind": name, "kills": sum(
            kill_once(folder, whole, name, draw) for _ in range(wanted)
        )}  # fmt: skip
        try:
            if kind.output != "model" or not (folder / "model").exists():
                call(folder, kind.words)
            case["same"] = kind.compare(folder) == expected[name]
        except (AssertionError, UsageError, OSError, TimeoutError) as error:
            case |= {"same": False, "why": str(error)}
        if not case["same"]:
            shutil.copytree(folder, out / f"case-{number}", dirs_exist_ok=True)
        with log.open("a") as file:
            file.write(json.dumps(case) + "\n")
        done.append(case)
        total += case["kills"]
        yield case


def report(out: Path) -> str:
    """Say how many kills there were of each kind, and how many runs ended otherwise than an undisturbed one."""
    cases = [json.loads(line) for line in (out / "kills.jsonl").read_text().splitlines()]
    kills: Counter[str] = Counter()
    for case in cases:
        kills[case["kind"]] += case["kills"]
    others = [str(case["case"]) for case in cases if not case["same"]]
    lines = [f"{kills.total()} kills in {len(cases)} runs; {len(others)} ended otherwise {', '.join(others)}".rstrip()]
    return "\n".join([*lines, *(f"  {count:>4}  {name}" for name, count in kills.most_common())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked = parser.parse_args()
    for one in soak(asked.out, asked.kills, asked.seconds):
        print(json.dumps(one), flush=True)
    print(report(asked.out))
