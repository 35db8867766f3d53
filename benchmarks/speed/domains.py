"""How memory and time grow with the number of source domains, where a step meets a few of them.

    python benchmarks/speed/domains.py
    python benchmarks/speed/domains.py --algorithm group-dro --device cuda

The same 100,000 made rows, 3 trials of an MLP in one stack, 6 domains a step; only the number of domains that the rows
are divided into differs. Each is trained and evaluated in a process of its own. Peak memory is that of the process, and
on a GPU also of the device; what the process takes before it makes the data is shown beside.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from argparse import Namespace

import torch

from seqdg.core import build
from seqdg.data import Dataset
from seqdg.nets import Net, mlp
from seqdg.training import Inputs, Job, Protocol, Stack, make_generator, run_stack, split_rows

ROWS, INPUTS, CLASSES, TRIALS, WARM_UP = 100_000, 64, 5, 3, 8


def make_dataset(domains: int) -> Dataset:
    """Make rows whose class depends on some inputs, and whose domain shifts the others; one domain more is held out."""
    generator = torch.Generator().manual_seed(0)
    x, domain = torch.randn(ROWS, INPUTS, generator=generator), torch.arange(ROWS) % (domains + 1)
    y = x[:, :CLASSES].argmax(1)
    x[:, CLASSES:] += 0.001 * domain.unsqueeze(1)
    names = tuple(f"d{i}" for i in range(domains + 1))
    return Dataset("made", names, tuple("abcde"), x, y, domain, "f")


def train(options: Namespace) -> None:
    """Print the peak memory in MiB, of the process at the start, in all, and of the device, and milliseconds a step."""
    torch.set_num_threads(1)
    device, before = torch.device(options.device), measure_memory()
    dataset, algorithm = make_dataset(options.domains), build(options.algorithm)
    protocol = Protocol(steps=WARM_UP + options.steps, evaluations=2, domains_per_step=options.met)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Net(mlp(INPUTS, (64, 32), CLASSES), "none")
    jobs = []
    for seed in range(TRIALS):
        split = split_rows(dataset, protocol, ("d0",), seed)
        params = algorithm.init(net, net.params(), options.domains, make_generator(seed, "extra"))
        jobs.append(Job(algorithm, protocol, split, seed, params))
    stack = Stack(net.to(device), Inputs(dataset.x, dataset.y, device), jobs)
    state = stack.advance(stack.start(), WARM_UP)
    began = time.perf_counter()
    stack.advance(state, WARM_UP + options.steps)
    if device.type == "cuda":
        torch.cuda.synchronize()
    step = (time.perf_counter() - began) / options.steps * 1e3
    run_stack(lambda: stack, "made", device)
    used = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else 0.0
    print(before, measure_memory(), used, step)


def measure_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", default="agg")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--met", type=int, default=6)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--domains", type=int)
    options = parser.parse_args()
    if options.domains:
        train(options)
        return
    first = 0.0
    for domains in (10, 100, 1000):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--domains", str(domains)],
            capture_output=True,
            text=True,
            check=True,
        )
        before, whole, device, step = map(float, done.stdout.split())
        first = first or whole
        print(
            f"{options.met} of {domains:5} domains: {whole:.0f} MiB ({whole / first:.3f} times; {before:.0f} at the "
            f"start), device {device:.0f} MiB, {step:.2f} ms a step"
        )


if __name__ == "__main__":
    main()
