"""How the time of a training step grows with the number of source domains and with the number of stacked trials.

    python benchmarks/speed/growth.py --hidden 1024,128 --inputs 4096      (a GPU: the paper's VLCS net)
    python benchmarks/speed/growth.py --hidden 64,32 --inputs 196          (a CPU: the bundled benchmark's net)

Domains: of one trial, against two domains. Trials: of a stack on three domains, by trial, against one alone. Exact
S-MLDG stops at five domains: its cost grows exponentially.
"""

from __future__ import annotations

import argparse
from argparse import Namespace

import steps
import torch

DOMAINS = (2, 3, 4, 6, 8, 12, 16)
TRIALS = (1, 3, 10, 30, 100, 300, 1000)
EXACT_UNTIL = 5


def parse_options() -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="agg,fo-s-mldg,ffo-s-mldg,s-mldg@order=2,s-mldg")
    parser.add_argument("--hidden", default="1024,128")
    parser.add_argument("--inputs", type=int, default=4096)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--most", type=int, default=TRIALS[-1], help="trials")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def measure_step(name: str, options: Namespace, domains: int, trials: int) -> float:
    """Milliseconds."""
    smaller = Namespace(
        net="mlp", hidden=options.hidden, inputs=options.inputs, size=0, policy="none", precision=options.precision,
        domains=domains, batch=32, trials=trials, augment="", steps=options.steps, repeats=3, fixed=False, eager=False,
        device=options.device,
    )  # fmt: skip
    return steps.measure_milliseconds(name, smaller, steps.make_task(smaller))[0]


def main() -> None:
    options = parse_options()
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    net = f"{options.inputs}-{options.hidden.replace(',', '-')}-7"
    print(f"{net}, {options.precision}; {where}, torch {torch.__version__}")
    print("Source domains: milliseconds (times those of two domains)")
    for name in options.algorithms.split(","):
        line, base = [], None
        for n in DOMAINS:
            if name == "s-mldg" and n > EXACT_UNTIL:
                break
            time = measure_step(name, options, n, 1)
            base = base or time
            line.append(f"{n}: {time:.2f} ({time / base:.1f} x)")
        print(f"  {name:22} {'  '.join(line)}", flush=True)
    print("Stacked trials: milliseconds by trial (times less than one alone)")
    for name in options.algorithms.split(",")[:3]:
        line, base = [], None
        for n in (t for t in TRIALS if t <= options.most):
            time = measure_step(name, options, 3, n) / n
            base = base or time
            line.append(f"{n}: {time:.3f} ({base / time:.1f} x)")
        print(f"  {name:22} {'  '.join(line)}", flush=True)


if __name__ == "__main__":
    main()
