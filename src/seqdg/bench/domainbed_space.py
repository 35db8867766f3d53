"""What DomainBed's sweeps draw, and from which distributions (its `hparams_registry`, commit b93c22a): learning rate,
weight decay, batch size, dropout and the settings of each algorithm.

Its numbers of steps are shares of its 5,001 steps here, and its rates of second optimizers are factors of the usual
rate, 5e-5. What is a number of a method that it lacks is drawn from the method's own range.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqdg.base import UsageError
from seqdg.bench.search import Proposal, draw_value, list_ranges
from seqdg.core import Range, Settings, collect_rules, flatten_settings, shorten, split_chain, with_settings
from seqdg.training import Protocol, make_stream

STEPS, RATE = 5001, 5e-5
DROPOUT = (0.0, 0.1, 0.5)
_WEAK = Range(1 / STEPS, 10_000 / STEPS)  # the steps with a weak penalty
_PENALTY = Range(0.1, 1e5)
_SPACES: dict[str, dict[str, Range | tuple[Any, ...]]] = {
    "dann": {"lam": Range(0.01, 100.0)},
    "cdann": {"lam": Range(0.01, 100.0)},
    "rdm": {
        "lam": Range(0.1, 10.0, log=False),
        "spread": Range(0.001, 0.007, log=False),
        "anneal": Range(800 / STEPS, 2700 / STEPS, log=False),
        "second_rate": Range(8e-6 / RATE, 2e-5 / RATE, log=False),
    },
    "rsc": {"feature_share": Range(0.0, 0.5, log=False), "row_share": Range(0.0, 0.5, log=False)},
    "sagnet": {"adversary": Range(0.01, 10.0)},
    "irm": {"lam": _PENALTY, "anneal": _WEAK},
    "vrex": {"lam": _PENALTY, "anneal": _WEAK},
    "ib-erm": {"lam": _PENALTY, "anneal": _WEAK},
    "ib-irm": {"lam": _PENALTY, "bottleneck": _PENALTY, "anneal": _WEAK},
    "mixup": {"mix": Range(0.1, 10.0)},
    "group-dro": {"eta": Range(1e-3, 0.1)},
    "mmd": {"gamma": Range(0.1, 10.0)},
    "coral": {"gamma": Range(0.1, 10.0)},
    "causirl": {"gamma": Range(0.1, 10.0)},
    "mldg": {"beta": Range(0.1, 10.0)},
    "mtl": {"ema": (0.5, 0.9, 0.99, 1.0)},
    "sd": {"lam": Range(1e-5, 0.1)},
    "and-mask": {"tau": Range(0.5, 1.0, log=False)},
    "iga": {"penalty": Range(10.0, 1e5)},
    "sand-mask": {"tau": Range(0.0, 1.0, log=False), "k": Range(1e-3, 1e5)},
    "fishr": {
        "lam": Range(10.0, 1e4),
        "keep": Range(0.9, 0.99, log=False),
        "anneal": Range(0.0, 5000 / STEPS, log=False),
    },
    "cad": {"lam": (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0), "temperature": (0.05, 0.1)},
    "eqrm": {
        "quantile": Range(0.5, 0.99, log=False),
        "burn_in": Range(10**2.5 / STEPS, 10**3.5 / STEPS),
        "second_rate": Range(1e-7 / RATE, 1e-5 / RATE),
    },
    "urm": {"adversary": Range(0.0, 0.2, log=False)},
}
_BATCHES = {"arm": (8, 8), "rdm": (70, 100)}  # of pictures for pretrained networks; others: from 2^3 to 2^5.5


class Drawn(NamedTuple):
    """A candidate: its settings, how it is trained, and what dropout drops."""

    algorithm: Settings
    protocol: Protocol
    dropout: float | None


def draw_from_domainbed(
    name: str,
    first: Proposal,
    protocol: Protocol,
    optimizer: str,
    count: int,
    fixed: Collection[str],
    shape: tuple[int, ...],
) -> list[Drawn]:
    """Return the first proposal as it is and count - 1 drawn as DomainBed's sweeps draw them, except what is fixed.

    shape: of one input, which decides between its ranges for small pictures and for those of pretrained networks.
    """
    if count < 1:
        raise UsageError(f"{count} candidates were asked for, but at least 1 is needed.")
    if optimizer not in ("adam", "adam-l2"):
        raise UsageError(
            f"DomainBed's learning rates are for Adam, and {shorten(name)} trains with {optimizer} here: add "
            f"--set {shorten(name)}.optimizer=adam-l2 (its Adam), or search without --search-space domainbed."
        )
    is_small = not (len(shape) == 3 and shape[-1] >= 64)
    drawn = [Drawn(first.algorithm, replace(protocol, lr=first.lr), None)]
    for i in range(1, count):
        stream = make_stream(0, "domainbed", name, i)
        changes = {k: v for k, v in _draw_training(name, is_small, stream).items() if k not in fixed}
        dropout = DROPOUT[int(stream.integers(len(DROPOUT)))]
        algorithm = _draw_settings(name, first.algorithm, fixed, stream)
        trained = replace(protocol, **{"lr": first.lr, **changes})
        drawn.append(Drawn(algorithm, trained, None if "dropout" in fixed else dropout))
    return drawn


def _draw_training(name: str, is_small: bool, stream: np.random.Generator) -> dict[str, Any]:
    """Draw the fields of the protocol; every candidate draws all, so that fixing one moves no other."""
    rate, decay, size = (float(stream.random()) for _ in range(3))
    if is_small:
        return {"lr": 10 ** (-4.5 + 2 * rate), "weight_decay": 0.0, "batch": int(2 ** (3 + 6 * size))}
    low, high = _BATCHES.get(split_chain(shorten(name))[0], (0, 0))
    batch = low + int((high - low) * size) if low else int(2 ** (3 + 2.5 * size))
    return {"lr": 10 ** (-5 + 1.5 * rate), "weight_decay": 10 ** (-6 + 4 * decay), "batch": batch}


def _draw_settings(name: str, algorithm: Settings, fixed: Collection[str], stream: np.random.Generator) -> Settings:
    spaces = [_SPACES[part] for part in split_chain(shorten(name)) if part in _SPACES]
    theirs = {key: where for space in spaces for key, where in space.items()}
    rules, now = collect_rules(algorithm), flatten_settings(algorithm)
    values = {}
    for key, where in {**list_ranges(algorithm), **theirs}.items():
        example = now[key][0] if isinstance(now[key], tuple) else now[key]
        value = draw_value(where, example, stream.integers, stream.random)
        most = rules[key][1].get("most")
        value = value if most is None or isinstance(where, tuple) else min(value, most)
        if key not in fixed:
            values[key] = (value,) * len(now[key]) if isinstance(now[key], tuple) else value
    return with_settings(algorithm, values)
