"""Our algorithms in DomainBed's train.py and sweep.py, unmodified.

    python -m seqdg.interop.domainbed train --domainbed DIR --algorithm fo-s-mldg+ema --dataset PACS --data_dir DATA
    python -m seqdg.interop.domainbed sweep launch --domainbed DIR --algorithms fo-s-mldg ERM --command_launcher local

Everything after `train` or `sweep` but `--domainbed DIR` goes to the script. What it looks up by name is put where it
looks: the class into the globals of its module of algorithms, the settings into what its registry returns. A sweep
starts its trainings through a launcher, which here starts them this way too.

Our algorithms are modules there, with `update` and `predict`. DomainBed hands over minibatches in the order of its
environments. The path through them and the key of a step come from torch's generator, which its train.py seeds.
Everything that training carries is in `state_dict`, and so in its checkpoints; it follows the inputs to their device.
"""

from __future__ import annotations

import argparse
import copy
import runpy
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from seqdg.base import DOMAINBED, Episode, Params, UsageError, join_names, set_checkout, unknown
from seqdg.bench import draw_value, list_ranges
from seqdg.core import Algorithm, build, collect_rules, count_needed_evaluations, flatten_settings, with_settings
from seqdg.interop.checkout import find_checkout, import_module, on_path
from seqdg.nets import Net, has_batchnorm
from seqdg.training import OPTIMIZERS, Rates, end_stages, split_by_pace

COMMANDS = ("train", "sweep")
USAGE = (
    "Write python -m seqdg.interop.domainbed train --domainbed DIR and the options of DomainBed's train.py, or sweep "
    "and those of its sweep.py."
)
START = "python -m domainbed.scripts.train"  # how the commands of a sweep begin
USUAL_STEPS = 5001  # of a data set that names no other number
OPTIMIZER, STEPS = "optimizer", "steps"  # settings beside an algorithm's own
REMEMBERED = 4  # steps whose minibatches give the statistics of BatchNorm layers that are not frozen
STATE = "params", "memory", "slots", "update_count", "stage"  # what training carries from step to step
Settings = dict[str, tuple[Any, Any]]  # by name, the default and a random draw, as its registry has them


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
        mistake = f"'{words[0]}' is none of its scripts" if words else "No script was named"
        raise UsageError(f"{mistake}. {USAGE}")
    command = words[0]
    asked, rest = read_options(words[1:])
    set_checkout(DOMAINBED, asked.domainbed)
    algorithms = import_module("algorithms")
    ours = [name for name in asked.algorithms if not hasattr(algorithms, name)]
    steps = getattr(getattr(import_module("datasets"), asked.dataset, None), "N_STEPS", USUAL_STEPS)
    add_algorithms(ours, asked.steps or steps if command == "train" else USUAL_STEPS)
    if command == "sweep":
        wrap_launchers(import_module("command_launchers"))
    import_module(f"scripts.{command}")  # where a package is missing, a sentence says so
    script = f"domainbed.scripts.{command}"
    sys.modules.pop(script, None)
    sys.argv = [script, *rest]
    with on_path():
        runpy.run_module(script, run_name="__main__", alter_sys=True)


def read_options(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return what is read here of a script's options, and all words that are the script's, as it reads them itself."""
    ours = _Parser(add_help=False, allow_abbrev=False)
    ours.add_argument("--domainbed")
    asked, rest = ours.parse_known_args(words)
    theirs = _Parser(add_help=False, allow_abbrev=False)
    theirs.add_argument("--algorithm", "--algorithms", dest="algorithms", nargs="+", default=[])
    theirs.add_argument("--dataset", default="RotatedMNIST")
    theirs.add_argument("--steps", type=int)
    theirs.parse_known_args(rest, asked)
    return asked, rest


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[0].upper()}{message[1:]}. {USAGE}")


def add_algorithms(names: Iterable[str], steps: int = USUAL_STEPS) -> None:
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
        theirs: dict[str, tuple[Any, Any]] = original(algorithm, dataset, random_seed)
        if algorithm not in ours:
            return theirs

        def draw(name: str) -> np.random.RandomState:
            return np.random.RandomState(misc.seed_hash(random_seed, name))

        added = list_settings(algorithm, steps, draw)
        if twice := [name for name in added if name in theirs]:
            raise UsageError(
                f"{algorithm} and DomainBed both have a setting '{twice[0]}': rename it in your own class."
            )
        return {**theirs, **added}

    return hparams


def wrap_launchers(launchers: ModuleType) -> None:
    """Let every launcher start trainings through this module, in which our algorithms have their names."""

    def launch(original: Callable[[list[str]], None], commands: list[str]) -> None:
        original([redirect_command(command) for command in commands])

    launchers.REGISTRY.update({name: partial(launch, launcher) for name, launcher in launchers.REGISTRY.items()})


def redirect_command(command: str) -> str:
    """Return the command of a sweep that starts the same training through this module."""
    folder = find_checkout()
    option = [] if folder is None else ["--domainbed", str(folder)]
    start = shlex.join([sys.executable, "-m", "seqdg.interop.domainbed", "train", *option])
    return command.replace(START, start, 1)


def list_settings(name: str, steps: int, draw: Callable[[str], np.random.RandomState]) -> Settings:
    """List the settings of an algorithm: its own, the optimizer, and the number of steps, which a class is not told.

    draw: makes the generator of a setting's random value, by its name.
    """
    algorithm = build(name)
    ranges = list_ranges(algorithm)
    settings: Settings = {}
    for setting, value in flatten_settings(algorithm).items():
        drawn = value
        if (where := ranges.get(setting)) is not None:
            generator = draw(setting)
            drawn = draw_value(where, value, generator.randint, generator.random_sample)
        settings[setting] = value, drawn
    # Its classes step torch's Adam, whose weight decay is part of the gradient.
    return {**settings, OPTIMIZER: ("adam-l2", "adam-l2"), STEPS: (steps, steps)}


def check_name(name: str) -> None:
    """Raise a UsageError where an algorithm cannot run in its scripts."""
    if count_needed_evaluations(build(name)):
        raise UsageError(
            f"{name} reads the loss on validation rows, and DomainBed's train.py tells a class of none: choose +ema or "
            "+sma, which need none."
        )


def make_class(name: str, base: type, networks: Any) -> type:
    """Make the class that is one of our algorithms there.

    base: its class of algorithms.   networks: its module of networks.
    """
    check_name(name)
    return type(name, (_Bridge, base), {"name": name, "networks": networks, "__doc__": f"seqdg's {name}"})


class _Bridge(nn.Module):
    name: str
    networks: Any
    hparams: Mapping[str, Any]

    def __init__(
        self, input_shape: Sequence[int], num_classes: int, num_domains: int, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, num_classes, num_domains, hparams)
        self.hparams = hparams
        self.algorithm = read_algorithm(self.name, hparams)
        if self.algorithm.uses:
            raise UsageError(
                f"{self.name} reads {join_names([f'episode.{part}' for part in self.algorithm.uses])}, which DomainBed "
                "does not hand over: compare it with `seqdg bench`."
            )
        kind = str(hparams[OPTIMIZER])
        if kind == "auto":
            kind = self.algorithm.optimizer
        if kind not in OPTIMIZERS:
            raise unknown("optimizer", kind, ("auto", *OPTIMIZERS))
        self.optimizer = OPTIMIZERS[kind]
        self.rates = Rates(float(hparams["lr"]), 0.9, float(hparams["weight_decay"]))
        self.bounds = scale_stages(self.algorithm, int(hparams[STEPS]))
        self.net = self._make_net(input_shape, num_classes)
        self.algorithm.check(self.net, num_domains)
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        params = self.algorithm.init(self.net, self.net.params(), num_domains, generator)
        self.params: Params = {name: p.detach().clone() for name, p in params.items()}  # copies may share their memory
        self.memory: Params = self.algorithm.memory(self.net, params, num_domains)
        self.slots: dict[str, Params] = {}
        self.update_count, self.stage = 0, -1  # the last stage entered
        self._device: torch.device | None = None  # of all that training carries, once it is known
        self._seen: list[Tensor] = []  # the last minibatches, where BatchNorm is recalibrated
        self._deployed: Params | None = None

    def _make_net(self, input_shape: Sequence[int], num_classes: int) -> Net:
        featurizer = self.networks.Featurizer(input_shape, self.hparams)
        nonlinear = self.hparams["nonlinear_classifier"]
        module = nn.Sequential(featurizer, self.networks.Classifier(featurizer.n_outputs, num_classes, nonlinear))
        policy = "frozen" if self.hparams["freeze_bn"] else "recalibrate"
        return Net(module, policy if has_batchnorm(module) else "none")

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in STATE}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        for name in STATE:
            setattr(self, name, copy.deepcopy(state[name]))
        self._device = self._deployed = None

    def update(self, minibatches: Sequence[tuple[Tensor, Tensor]], unlabeled: Any = None) -> dict[str, float]:
        """Take one step along a random path through the domains."""
        self._move(minibatches[0][0].device)
        while self.stage < 0 or (self.update_count >= self.bounds[self.stage] and self.stage + 1 < len(self.bounds)):
            self._enter()
        start = self.bounds[self.stage - 1] if self.stage else 0
        algorithm = self.algorithm.stages()[self.stage][1]
        episode = self._make_episode(minibatches, (self.update_count - start) / (self.bounds[self.stage] - start))
        direction, loss, memory = algorithm.step(self.net, self.params, self.memory, episode)
        self.params = {**self.params, **direction} if algorithm.moves else self.params
        for pace, part in split_by_pace(algorithm, {} if algorithm.moves else direction):
            rates = self.rates._replace(lr=self.rates.lr * pace)
            self.params, self.slots = self.optimizer.update(self.params, part, self.slots, rates)
        self.memory = memory
        self.update_count += 1
        self._deployed = None
        if self.net.on_batch:
            self._seen = [*self._seen, episode.x][-REMEMBERED:]
        return {"loss": float(loss)}

    def _make_episode(self, minibatches: Sequence[tuple[Tensor, Tensor]], progress: float) -> Episode:
        order, key = torch.randperm(len(minibatches)), torch.randint(2**62, ())
        x = torch.stack([minibatches[i][0] for i in order.tolist()])
        y = torch.stack([minibatches[i][1] for i in order.tolist()])
        moment = torch.tensor(min(progress, 1.0), dtype=x.dtype, device=x.device)
        return Episode(
            x, y, order.to(x.device), moment, key.to(x.device), torch.full_like(moment, float(self.rates.lr))
        )

    def _enter(self) -> None:
        """Begin the next stage, with a new optimizer."""
        self.stage += 1
        algorithm = self.algorithm.stages()[self.stage][1]
        self.params, self.memory = algorithm.enter(self.net, self.params, self.memory)
        self.slots = self.optimizer.init(self.params)

    def predict(self, x: Tensor) -> Tensor:
        """Return the logits of the deployed weights."""
        self._move(x.device)
        with torch.no_grad():
            if self._deployed is None:
                self._deployed = self._deploy()
            return self.algorithm.predict(self.net, self._deployed, x)

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(x)

    def _deploy(self) -> Params:
        deployed = self.algorithm.deploy(self.params, self.memory)
        if not (self.net.on_batch and self._seen):
            return deployed
        parts = [x for step in self._seen for x in step]  # one domain each
        each = [self.algorithm.statistics(self.net, deployed, x) for x in parts]
        stacked = [{name: value[None] for name, value in one.items()} for one in each]
        pooled = self.net.pool_statistics(stacked)
        return {**deployed, **{name: value.squeeze(0) for name, value in pooled.items()}}

    def _move(self, device: torch.device) -> None:
        """Follow the inputs."""
        if self._device != device:
            self.net, self._device, self._deployed = self.net.to(device), device, None
            self.params, self.memory, *slots = (
                {name: value.to(device) for name, value in part.items()}
                for part in (self.params, self.memory, *self.slots.values())
            )
            self.slots = dict(zip(self.slots, slots, strict=True))


def read_algorithm(name: str, hparams: Mapping[str, Any]) -> Algorithm:
    """Build the algorithm with the settings that a training was given; a list has a value for each position."""
    algorithm = build(name)
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in hparams.items() if k in collect_rules(algorithm)}
    return with_settings(algorithm, settings)


def scale_stages(algorithm: Algorithm, steps: int) -> list[int]:
    """Say after how many steps each stage ends, within the steps that there are: stages that come on top of a training
    elsewhere share them here."""
    if steps < 1:
        raise UsageError(f"steps is {steps}, but at least 1 is needed.")
    total = sum(share for share, _ in algorithm.stages())
    bounds = end_stages(algorithm, round(steps / max(1.0, total)))
    return [*bounds[:-1], max(steps, bounds[-1])]


if __name__ == "__main__":
    main(sys.argv[1:])
