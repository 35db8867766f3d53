"""DomainBed's train.py and sweep.py, unmodified, with our algorithms and their search ranges in its registries.

    python -m seqdg.interop.domainbed train --domainbed DIR --algorithm fo-s-mldg+ema --dataset PACS --data_dir DATA
    python -m seqdg.interop.domainbed sweep launch --domainbed DIR --algorithms fo-s-mldg ERM --command_launcher local

Everything after `train` or `sweep` but `--domainbed DIR` goes to the script. What it looks up by name is put where it
looks: the class into the globals of its module of algorithms, the settings into what its registry returns. A sweep
starts its trainings through a launcher, which here starts them this way too.
"""

from __future__ import annotations

import runpy
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from seqdg.base import DOMAINBED, UsageError, set_checkout
from seqdg.interop.domainbed.bridge import list_settings, make_class
from seqdg.interop.domainbed.checkout import find_checkout, import_module

COMMANDS = ("train", "sweep")
USAGE = (
    "Write python -m seqdg.interop.domainbed train --domainbed DIR and the options of DomainBed's train.py, or sweep "
    "and those of its sweep.py."
)
START = "python -m domainbed.scripts.train"  # how the commands of a sweep begin
STEPS = 5001  # of a data set that says nothing else


def main(words: Sequence[str]) -> None:
    """Run one of its scripts. Bad input gives one sentence on stderr and exit code 2."""
    try:
        run_script(words)
    except UsageError as error:
        print(f"seqdg: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def run_script(words: Sequence[str]) -> None:
    """Run `train` or `sweep` with its own options, and --domainbed DIR."""
    if words and words[0] in ("-h", "--help"):
        print(USAGE)
        return
    if not words or words[0] not in COMMANDS:
        given = f"'{words[0]}' is none of its scripts" if words else "No script was named"
        raise UsageError(f"{given}. {USAGE}")
    command, *rest = words
    place, rest = take_option(rest, "--domainbed")
    set_checkout(DOMAINBED, place)
    algorithms = import_module("algorithms")
    wanted = read_values(rest, "--algorithm" if command == "train" else "--algorithms")
    ours = [name for name in wanted if not hasattr(algorithms, name)]
    add_algorithms(ours, count_steps(rest) if command == "train" else STEPS)
    if command == "sweep":
        wrap_launchers(import_module("command_launchers"))
    import_module(f"scripts.{command}")  # where a package is missing, a sentence says so
    folder = find_checkout()
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    sys.modules.pop(f"domainbed.scripts.{command}", None)
    sys.argv = [f"domainbed.scripts.{command}", *rest]
    runpy.run_module(f"domainbed.scripts.{command}", run_name="__main__", alter_sys=True)


def add_algorithms(names: Iterable[str], steps: int = STEPS) -> None:
    """Put our algorithms of these names where its scripts look for classes and their settings."""
    algorithms, networks = import_module("algorithms"), import_module("networks")
    registry: Any = import_module("hparams_registry")
    ours = tuple(names)
    for name in ours:
        setattr(algorithms, name, make_class(name, algorithms.Algorithm, networks))
        if name not in algorithms.ALGORITHMS:
            algorithms.ALGORITHMS.append(name)
    registry._hparams = _add_settings(registry._hparams, ours, steps)


def _add_settings(original: Callable[..., Any], ours: Sequence[str], steps: int) -> Callable[..., Any]:
    misc = import_module("lib.misc")

    @wraps(original)
    def hparams(algorithm: str, dataset: str, random_seed: int) -> dict[str, tuple[Any, Any]]:
        found: dict[str, tuple[Any, Any]] = original(algorithm, dataset, random_seed)
        if algorithm not in ours:
            return found

        def draw(name: str) -> np.random.RandomState:
            return np.random.RandomState(misc.seed_hash(random_seed, name))

        added = list_settings(algorithm, steps, draw)
        if twice := [name for name in added if name in found]:
            raise UsageError(
                f"{algorithm} and DomainBed both have a setting '{twice[0]}': rename it in your own class."
            )
        return {**found, **added}

    return hparams


def wrap_launchers(launchers: ModuleType) -> None:
    """Let every launcher start trainings through this module, in which our algorithms have their names."""

    def wrap(original: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
        @wraps(original)
        def launch(commands: list[str]) -> None:
            original([redirect_command(command) for command in commands])

        return launch

    launchers.REGISTRY.update({name: wrap(launcher) for name, launcher in launchers.REGISTRY.items()})


def redirect_command(command: str) -> str:
    """Return the command of a sweep that starts the same training through this module."""
    folder = find_checkout()
    place = [] if folder is None else ["--domainbed", str(folder)]
    start = shlex.join([sys.executable, "-m", "seqdg.interop.domainbed", "train", *place])
    return command.replace(START, start, 1)


def take_option(words: Sequence[str], option: str) -> tuple[str | None, list[str]]:
    """Return the value of an option, written `--name value` or `--name=value`, and all other words."""
    rest, value = list(words), None
    for i, word in enumerate(rest):
        if word == option:
            if i + 1 == len(rest):
                raise UsageError(f"{option} names nothing: give a folder after it.")
            value = rest[i + 1]
            return value, [*rest[:i], *rest[i + 2 :]]
        if word.startswith(f"{option}="):
            return word.partition("=")[2], [*rest[:i], *rest[i + 1 :]]
    return value, rest


def read_values(words: Sequence[str], option: str) -> list[str]:
    """Return the values of an option of its scripts, as argparse reads them."""
    values: list[str] = []
    reading = False
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            reading = name == option and not equals
            values += [value] if name == option and equals else []
        elif reading:
            values.append(word)
    return values


def count_steps(words: Sequence[str]) -> int:
    """Count the steps that train.py will take: what it is told, or else what the data set has."""
    if told := read_values(words, "--steps"):
        try:
            return int(told[0])
        except ValueError:
            return STEPS  # train.py says what is wrong with it
    names = read_values(words, "--dataset") or ["RotatedMNIST"]
    kind = getattr(import_module("datasets"), names[0], None)
    return int(getattr(kind, "N_STEPS", STEPS))
