"""Settings: a default and a random draw of each."""

from __future__ import annotations

import numpy as np

from domainbed.lib import misc


def _hparams(algorithm, dataset, random_seed):
    small, hparams = dataset in ("Debug28", "RotatedMNIST", "ColoredMNIST"), {}

    def _hparam(name, default_val, random_val_fn):
        assert name not in hparams
        hparams[name] = (default_val, random_val_fn(np.random.RandomState(misc.seed_hash(random_seed, name))))

    _hparam("nonlinear_classifier", False, lambda r: bool(r.choice([False, False])))
    _hparam("freeze_bn", False, lambda r: False)
    _hparam("class_balanced", False, lambda r: False)
    if algorithm == "VREx":
        _hparam("vrex_lambda", 1e1, lambda r: 10 ** r.uniform(-1, 5))
        _hparam("vrex_penalty_anneal_iters", 500, lambda r: int(10 ** r.uniform(0, 4)))
    elif algorithm == "GroupDRO":
        _hparam("groupdro_eta", 1e-2, lambda r: 10 ** r.uniform(-3, -1))
    elif algorithm == "Fish":
        _hparam("meta_lr", 0.5, lambda r: r.choice([0.05, 0.1, 0.5]))
    elif algorithm == "Mixup":
        _hparam("mixup_alpha", 0.2, lambda r: 10 ** r.uniform(-1, 1))
    _hparam("lr", 1e-3 if small else 5e-5, lambda r: 10 ** r.uniform(-4.5, -2.5))
    _hparam("weight_decay", 0.0, lambda r: 0.0 if small else 10 ** r.uniform(-6, -2))
    _hparam("batch_size", 64 if small else 32, lambda r: int(2 ** r.uniform(3, 9)))
    return hparams


def default_hparams(algorithm, dataset):
    return {a: b for a, (b, c) in _hparams(algorithm, dataset, 0).items()}


def random_hparams(algorithm, dataset, seed):
    return {a: c for a, (b, c) in _hparams(algorithm, dataset, seed).items()}
