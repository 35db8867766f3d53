"""The contract of algorithms, executable: for the ones in this package and for yours."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from seqdg.base import state_reason
from seqdg.core import Algorithm, list_layers
from seqdg.nets import Net
from seqdg.testing import checks
from seqdg.testing.case import Case, Rows, Violation, build_nets, find_source_count, format_algorithm, stack_episodes

__all__ = ["ContractError", "Rows", "check_algorithm"]

CHECKS: dict[str, Callable[[Case], None]] = {
    "deterministic": checks.check_deterministic,
    "inputs and buffers untouched": checks.check_untouched,
    "stages, directions, losses and predictions have the right form": checks.check_form,
    "a row is predicted as if it were alone, unless the algorithm is transductive": checks.check_rows,
    "the direction equals the gradient of the loss": checks.check_gradient,
    "a memory keeps its names, shapes and types, stays finite and is read": checks.check_memory,
    "vmapped equals looped, a trial alone equals the same trial in a group": checks.check_vmap,
    "each source domain's data changes the direction": checks.check_domains,
    "each setting changes the direction": checks.check_settings_act,
    "one number holds for every position": checks.check_one_for_all_positions,
    "settings given as 0-d tensors act as numbers do": checks.check_tensor_settings,
    "float64 and float32": checks.check_precision,
    "1, 2, 3 and 5 domains work or fail with a sentence": checks.check_counts,
    "a step may meet some of the source domains": checks.check_some_domains,
    "settings survive a round trip through their printed form": checks.check_round_trip,
    "the docstring names the paper and every setting": checks.check_documented,
}


def __dir__() -> list[str]:
    return __all__


class ContractError(AssertionError):
    """An algorithm breaks the contract: a sentence that names the algorithm, the check and the culprit."""


def check_algorithm(algorithm: Algorithm, net: Net | None = None, rows: Rows | None = None) -> None:
    """Raise a ContractError unless the algorithm, set as it is, keeps what every other part relies on.

    On a small MLP without and with BatchNorm, in float64, with three source domains (or the fewest more that it
    takes), at weights away from the start, in every stage (on a small convolutional net with points between its layers,
    where the algorithm acts there):

    - the direction equals the gradient of the loss where a loss is defined, and has the weights' shapes and types;
    - the same input gives the same bits; nothing is drawn from a global generator, and no input or buffer changes;
    - a row's prediction, with BatchNorm fixed, does not depend on the rows beside it, unless `together` says so;
    - a memory keeps its names, shapes and types, stays finite, and changes what is deployed later;
    - a stack of trials under `torch.func.vmap` gives what a loop gives, and what a trial gives alone;
    - x and y of each source domain change what is predicted after a step, in a stage that uses them;
    - each setting, and each position of one that may differ by position, changes the direction, or what `init`,
      `stages` or `deploy` return (a class names in `inert` those that need not);
    - settings given as 0-d tensors, one per trial in a stack, act as numbers do, and print and read back the same;
    - float32 gives float32, and nearly the direction of float64;
    - 1, 2, 3 and 5 source domains work, or `check` raises a UsageError that says how many are needed;
    - a step may meet some of the source domains, alone and in a stack, unless `needs_all` says otherwise;
    - the docstring cites the paper and explains every setting.

    A class that says `stackable = False` is not mapped over trials.

    A setting that acts only beside another (a width under one kernel) is checked by calling this with both set.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm, with its settings.
    net : Net, optional
        A network of your own in place of the small ones, with `rows` that it reads.
    rows : Rows, optional
        The rows of each domain, as `seqdg.testing.Rows([(x, y), ...], classes)`.

    Examples
    --------
    >>> import seqdg
    >>> seqdg.testing.check_algorithm(seqdg.build("agg"))
    """
    own = None if net is None else {"the network": net.to(dtype=torch.float64)}
    for kind, each in (own or build_nets(algorithm.needs_points)).items():
        with _failing(algorithm, kind, "three or more source domains work"):
            case = Case(algorithm, each, find_source_count(algorithm, each), rows)
        for title, check in CHECKS.items():
            with _failing(algorithm, kind, title):
                check(case)


@contextmanager
def _failing(algorithm: Algorithm, net: str, title: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into a sentence."""
    start = f"{format_algorithm(algorithm)} on {net} fails the check '{title}':"
    try:
        yield
    except Violation as violation:
        raise ContractError(f"{start} {violation}") from violation.__cause__
    except Exception as error:
        said = f"{type(error).__name__}: {state_reason(error)}"
        raise ContractError(f"{start} it raises {said}{_find_line(algorithm, error)}") from error


def _find_line(algorithm: Algorithm, error: Exception) -> str:
    """Say where an error was raised: `(line 12 of mine.py)`, of the file that the algorithm is in."""
    files = {getattr(sys.modules.get(type(layer).__module__), "__file__", None) for layer in list_layers(algorithm)}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    return f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
