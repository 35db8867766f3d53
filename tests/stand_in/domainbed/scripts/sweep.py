"""Many trainings."""

# ruff: noqa: PTH103, PTH110, PTH118
from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex

from domainbed import algorithms, command_launchers, datasets
from domainbed.lib import misc


class Job:
    def __init__(self, train_args, sweep_output_dir):
        args_hash = hashlib.md5(json.dumps(train_args, sort_keys=True).encode()).hexdigest()
        self.output_dir = os.path.join(sweep_output_dir, args_hash)
        command = ["python", "-m", "domainbed.scripts.train"]
        for k, v in sorted({**train_args, "output_dir": self.output_dir}.items()):
            if isinstance(v, list):
                v = " ".join(map(str, v))
            elif isinstance(v, str):
                v = shlex.quote(v)
            command.append(f"--{k} {v}")
        self.command_str = " ".join(command)
        self.launched = os.path.exists(self.output_dir)


def make_args_list(args):
    found = []
    for trial_seed in range(args.n_trials):
        for dataset in args.datasets:
            for algorithm in args.algorithms:
                for i in range(datasets.num_environments(dataset)):
                    for hparams_seed in range(args.n_hparams):
                        train_args = {
                            "dataset": dataset, "algorithm": algorithm, "test_envs": [i], "data_dir": args.data_dir,
                            "hparams_seed": hparams_seed, "trial_seed": trial_seed, "holdout_fraction": 0.2,
                            "seed": misc.seed_hash(dataset, algorithm, [i], hparams_seed, trial_seed),
                        }  # fmt: skip
                        train_args |= {"steps": args.steps} if args.steps is not None else {}
                        train_args |= {"hparams": args.hparams} if args.hparams is not None else {}
                        found.append(train_args)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["launch", "delete_incomplete"])
    parser.add_argument("--datasets", nargs="+", type=str, default=datasets.DATASETS)
    parser.add_argument("--algorithms", nargs="+", type=str, default=algorithms.ALGORITHMS)
    parser.add_argument("--n_hparams", type=int, default=20)
    parser.add_argument("--output_dir", type=str, required=True)
    parser.add_argument("--data_dir", type=str, required=True)
    parser.add_argument("--n_trials", type=int, default=3)
    parser.add_argument("--command_launcher", type=str, required=True)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--hparams", type=str, default=None)
    parser.add_argument("--single_test_envs", action="store_true")
    parser.add_argument("--skip_confirmation", action="store_true")
    args = parser.parse_args()
    jobs = [Job(train_args, args.output_dir) for train_args in make_args_list(args)]
    waiting = [job for job in jobs if not job.launched]
    for job in waiting:
        os.makedirs(job.output_dir, exist_ok=True)
    command_launchers.REGISTRY[args.command_launcher]([job.command_str for job in waiting])
    print(f"Launched {len(waiting)} jobs!")
