"""How long `seqdg.compare` takes on real features, and whether the same call twice gives the same answer.

    python benchmarks/compare.py --data DIR [--benchmarks office-caltech10,pacs-features] [--repeats 2] [--workers 2]

All that is left to the user stays as `compare` has it: net, steps, seeds, settings, all three rules of choice. Seconds
are those of a clock, and those that all processes together spent computing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import time
import warnings
from pathlib import Path

import numpy as np

import seqdg
from seqdg.bench import load_benchmark
from seqdg.data import load_data

NAMES = "agg,fo-mldg,fo-s-mldg,ffo-s-mldg,undo-bias,s-undo-bias,ensemble,dann,crossgrad,mmd-aae"


def measure_computing() -> float:
    """Seconds that this process and its workers, once they have ended, spent computing."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--benchmarks", default="office-caltech10,pacs-features")
    parser.add_argument("--algorithms", default=NAMES)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what they say is part of what is printed
    for name in options.benchmarks.split(","):
        data = load_data(load_benchmark(name).data, options.data, name=name)
        x, y = data.x.numpy(), np.array(data.classes)[data.y.numpy()]
        domains = np.array(data.domains)[data.domain.numpy()]
        answers = []
        for _ in range(options.repeats):
            began, before = time.perf_counter(), measure_computing()
            found = seqdg.compare(x, y, domains, options.algorithms.split(","), workers=options.workers)
            seconds, work = time.perf_counter() - began, measure_computing() - before
            assert found.estimator is not None
            digest = hashlib.sha256(found.estimator.predict_proba(x).tobytes()).hexdigest()
            answers.append((str(found), digest))
            print(
                f"{name}: {len(x)} rows, {len(found.algorithms)} algorithms, {options.workers} workers: "
                f"{seconds:.0f} s, {work:.0f} s of computing",
                flush=True,
            )
        text, digest = answers[0]
        print(
            f"{name}: {options.repeats} calls, {len(set(answers))} answer, predictions {digest[:16]}\n\n{text}",
            flush=True,
        )


if __name__ == "__main__":
    main()
