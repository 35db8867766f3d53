"""How long a net takes to predict, by the precision that it trains in, and how often it then says the same.

    python benchmarks/speed/evaluation.py --net resnet50          (a GPU)
    python benchmarks/speed/evaluation.py --net resnet18 --rows 64 --size 64 --device cpu

A net that trains in bf16 predicts in tf32. Images are random pixels and the weights random, so that what is said of a
row hangs by less than in a trained net.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch
from steps import make_task, make_trials

from seqdg.bench import Group, build_stack
from seqdg.training import set_precision


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--size", type=int, default=224, help="side of the images")
    parser.add_argument("--policy", default="frozen", help="of BatchNorm")
    parser.add_argument("--precision", default="float32,tf32,bf16", help="of training; several, in turn")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    given = {**vars(options), "hidden": "", "domains": 3, "batch": 32, "trials": 1, "augment": ""}
    task, device, first = make_task(argparse.Namespace(**given)), torch.device(options.device), None
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{options.net}, {options.rows} rows of {options.size} pixels; {where}, torch {torch.__version__}")
    for precision in options.precision.split(","):
        set_precision(precision)
        trials = make_trials("agg", argparse.Namespace(**{**given, "precision": precision}))
        stack = build_stack(Group(trials), task, device)
        deployed, rows = stack.deploy(stack.start()), (torch.arange(options.rows) % len(stack.inputs.y))[None]
        times = []
        for _ in range(options.repeats + 1):  # the first compiles kernels
            began = time.perf_counter()
            said = stack.predict(deployed, rows)[0].argmax(-1).cpu()
            times.append(time.perf_counter() - began)
        seconds = median(times[1:])
        first = (seconds, said) if first is None else first
        same = float((said == first[1]).double().mean())
        print(f"  {precision:8} {options.rows / seconds:8.0f} rows/s  {first[0] / seconds:5.2f} x  "
              f"{100 * same:6.2f} % said as in the first", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
