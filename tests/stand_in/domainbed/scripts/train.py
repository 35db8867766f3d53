"""One training."""

# ruff: noqa: PTH103, PTH118, PTH123
from __future__ import annotations

import argparse
import json
import os
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

from domainbed import algorithms, datasets, hparams_registry
from domainbed.lib import misc


def endlessly(part, batch_size):
    rows = torch.utils.data.RandomSampler(part, replacement=True, num_samples=10**6)
    return iter(DataLoader(part, batch_size=batch_size, sampler=rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", type=str)
    parser.add_argument("--dataset", type=str, default="RotatedMNIST")
    parser.add_argument("--algorithm", type=str, default="ERM")
    parser.add_argument("--task", type=str, default="domain_generalization")
    parser.add_argument("--hparams", type=str)
    parser.add_argument("--hparams_seed", type=int, default=0)
    parser.add_argument("--trial_seed", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--checkpoint_freq", type=int, default=None)
    parser.add_argument("--test_envs", type=int, nargs="+", default=[0])
    parser.add_argument("--output_dir", type=str, default="train_output")
    parser.add_argument("--holdout_fraction", type=float, default=0.2)
    parser.add_argument("--skip_model_save", action="store_true")
    args = parser.parse_args()

    os.makedirs(args.output_dir, exist_ok=True)
    sys.stdout = misc.Tee(os.path.join(args.output_dir, "out.txt"))
    if args.hparams_seed == 0:
        hparams = hparams_registry.default_hparams(args.algorithm, args.dataset)
    else:
        seed = misc.seed_hash(args.hparams_seed, args.trial_seed)
        hparams = hparams_registry.random_hparams(args.algorithm, args.dataset, seed)
    if args.hparams:
        hparams.update(json.loads(args.hparams))

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    dataset = vars(datasets)[args.dataset](args.data_dir, args.test_envs, hparams)
    parts = []
    for i, env in enumerate(dataset):
        seed = misc.seed_hash(args.trial_seed, i)
        out, in_ = misc.split_dataset(env, int(len(env) * args.holdout_fraction), seed)
        parts.append((in_, out))
    loaders = [endlessly(p[0], hparams["batch_size"]) for i, p in enumerate(parts) if i not in args.test_envs]
    algorithm_class = algorithms.get_algorithm_class(args.algorithm)
    algorithm = algorithm_class(dataset.input_shape, dataset.num_classes, len(dataset) - len(args.test_envs), hparams)
    algorithm.to("cpu")
    n_steps = args.steps or dataset.N_STEPS
    checkpoint_freq = args.checkpoint_freq or dataset.CHECKPOINT_FREQ
    for step in range(n_steps):
        values = algorithm.update([next(loader) for loader in loaders], None)
        if step % checkpoint_freq == 0 or step == n_steps - 1:
            results = {"step": step, "epoch": 0.0, **values, "hparams": hparams, "args": vars(args)}
            for i, both in enumerate(parts):
                for name, part in zip(("in", "out"), both, strict=True):
                    loader = DataLoader(part, batch_size=64)
                    results[f"env{i}_{name}_acc"] = misc.accuracy(algorithm, loader, None, "cpu")
            with open(os.path.join(args.output_dir, "results.jsonl"), "a") as f:
                f.write(json.dumps(results, sort_keys=True) + "\n")
    if not args.skip_model_save:
        saved = {"args": vars(args), "model_hparams": hparams, "model_dict": algorithm.state_dict()}
        torch.save(saved, os.path.join(args.output_dir, "model.pkl"))
    with open(os.path.join(args.output_dir, "done"), "w") as f:
        f.write("done")
