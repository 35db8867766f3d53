"""Our algorithms as classes of DomainBed: modules with `update` and `predict`, for its unmodified scripts.

DomainBed hands over minibatches in the order of its environments. The path through them and the key of a step come from
torch's generator, which its train.py seeds. Everything that training carries is a buffer: `to` moves it, and its
checkpoints hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqdg.base import Episode, Params, UsageError, unknown
from seqdg.bench import list_ranges
from seqdg.core import Algorithm, Range, build, collect_rules, count_needed_evaluations, flatten_settings, with_settings
from seqdg.nets import Net, has_batchnorm
from seqdg.training import OPTIMIZERS, Rates, end_stages, split_by_pace

OPTIMIZER, STEPS = "optimizer", "steps"  # settings beside an algorithm's own
REMEMBERED = 4  # steps whose minibatches give the statistics of BatchNorm layers that are not frozen
Settings = dict[str, tuple[Any, Any]]  # by name, the default and a random draw, as its registry has them


def list_settings(name: str, steps: int, draw: Callable[[str], np.random.RandomState]) -> Settings:
    """List the settings of an algorithm: its own, the optimizer, and the number of steps, which a class is not told.

    draw: makes the generator of a setting's random value, by its name.
    """
    algorithm = build(name)
    ranges = list_ranges(algorithm)
    settings: Settings = {}
    for setting, value in flatten_settings(algorithm).items():
        where = ranges.get(setting)
        settings[setting] = (value, value if where is None else draw_value(where, value, draw(setting)))
    # Its classes step torch's Adam, whose weight decay is part of the gradient.
    return {**settings, OPTIMIZER: ("adam-l2", "adam-l2"), STEPS: (steps, steps)}


def draw_value(where: Range | tuple[Any, ...], now: Any, generator: np.random.RandomState) -> Any:
    """Draw a setting from the range in which our searches look for it."""
    if isinstance(where, tuple):
        return where[int(generator.randint(len(where)))]
    low, high = (np.log(where.low), np.log(where.high)) if where.log else (where.low, where.high)
    value = float(generator.uniform(low, high))
    value = float(np.exp(value)) if where.log else value
    return round(value) if isinstance(now, int) and not isinstance(now, bool) else value


def check_name(name: str) -> None:
    """Raise a UsageError where an algorithm cannot run in its scripts."""
    if count_needed_evaluations(build(name)):
        raise UsageError(
            f"{name} reads the loss on validation rows, and DomainBed's train.py tells a class of none: choose +ema or "
            "+sma, which need none."
        )


def make_class(name: str, base: type, networks: Any) -> type:
    """Make the class that is one of our algorithms there.

    base: its class of algorithms.   networks: its module of nets.
    """
    check_name(name)
    return type(name, (_Bridge, base), {"name": name, "networks": networks, "__doc__": f"seqdg's {name}"})


class _Bridge(nn.Module):
    name: str
    networks: Any
    hparams: Mapping[str, Any]
    update_count: Tensor  # ()
    stage: Tensor  # (), the last one entered

    def __init__(
        self, input_shape: Sequence[int], num_classes: int, num_domains: int, hparams: Mapping[str, Any]
    ) -> None:
        super().__init__(input_shape, num_classes, num_domains, hparams)
        self.hparams = hparams
        self.algorithm = read_algorithm(self.name, hparams)
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
        self._put("params", {name: p.clone() for name, p in params.items()})  # copies may share their memory
        self._put("memory", self.algorithm.memory(self.net, params, num_domains))
        self.register_buffer("update_count", torch.tensor(0))
        self.register_buffer("stage", torch.tensor(-1))
        self._seen: list[Tensor] = []  # the last minibatches, where BatchNorm is recalibrated
        self._deployed: Params | None = None

    def _make_net(self, input_shape: Sequence[int], num_classes: int) -> Net:
        featurizer = self.networks.Featurizer(input_shape, self.hparams)
        nonlinear = self.hparams["nonlinear_classifier"]
        module = nn.Sequential(featurizer, self.networks.Classifier(featurizer.n_outputs, num_classes, nonlinear))
        policy = "frozen" if self.hparams["freeze_bn"] else "recalibrate"
        return Net(module, policy if has_batchnorm(module) else "none")

    def update(self, minibatches: Sequence[tuple[Tensor, Tensor]], unlabeled: Any = None) -> dict[str, float]:
        """Take one step along a random path through the domains."""
        self._move(minibatches[0][0].device)
        while int(self.stage) < 0 or (
            int(self.update_count) >= self.bounds[int(self.stage)] and int(self.stage) + 1 < len(self.bounds)
        ):
            self._enter()
        stage, count = int(self.stage), int(self.update_count)
        start = self.bounds[stage - 1] if stage else 0
        algorithm = self.algorithm.stages()[stage][1]
        params, memory, slots = self._get("params"), self._get("memory"), self._get_slots()
        episode = self._make_episode(minibatches, (count - start) / (self.bounds[stage] - start))
        direction, loss, memory = algorithm.step(self.net, params, memory, episode)
        for pace, part in split_by_pace(algorithm, direction):
            own = self.rates._replace(lr=self.rates.lr * pace)
            params, slots = self.optimizer.update(params, part, slots, own)
        self._put("params", params)
        self._put("memory", memory)
        self._put_slots(slots)
        self.update_count = self.update_count + 1
        self._deployed = None
        if self.net.on_batch:
            self._seen = [*self._seen, episode.x][-REMEMBERED:]
        return {"loss": float(loss)}

    def _make_episode(self, minibatches: Sequence[tuple[Tensor, Tensor]], progress: float) -> Episode:
        order, key = torch.randperm(len(minibatches)), torch.randint(2**62, ())
        x = torch.stack([minibatches[i][0] for i in order.tolist()])
        y = torch.stack([minibatches[i][1] for i in order.tolist()])
        moment = torch.tensor(min(progress, 1.0), dtype=x.dtype, device=x.device)
        return Episode(x, y, order.to(x.device), moment, key.to(x.device))

    def _enter(self) -> None:
        """Begin the next stage, with a new optimizer."""
        self.stage = self.stage + 1
        algorithm = self.algorithm.stages()[int(self.stage)][1]
        params, memory = algorithm.enter(self.net, self._get("params"), self._get("memory"))
        self._put("params", params)
        self._put("memory", memory)
        self._put_slots(self.optimizer.init(params))

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
        deployed = self.algorithm.deploy(self._get("params"), self._get("memory"))
        if not (self.net.on_batch and self._seen):
            return deployed
        parts = [x for step in self._seen for x in step]  # one domain each
        each = [self.algorithm.statistics(self.net, deployed, x) for x in parts]
        stacked = [{name: value[None] for name, value in one.items()} for one in each]
        pooled = self.net.pool_statistics(stacked)
        return {**deployed, **{name: value.squeeze(0) for name, value in pooled.items()}}

    def _move(self, device: torch.device) -> None:
        """Follow the inputs: the net's constants are no buffers of this module."""
        if getattr(self, "_device", None) != device:
            self.net, self._device, self._deployed = self.net.to(device), device, None

    def _put(self, part: str, values: Params) -> None:
        """Keep tensors as buffers; a name of a weight has dots, which a buffer's cannot have."""
        for name in [name for name in self._buffers if name.startswith(f"{part}/")]:
            del self._buffers[name]
        for name, value in values.items():
            self.register_buffer(f"{part}/{name.replace('.', '|')}", value.detach())

    def _get(self, part: str) -> Params:
        found = {name[len(part) + 1 :]: b for name, b in self._buffers.items() if name.startswith(f"{part}/")}
        return {name.replace("|", "."): b for name, b in found.items() if b is not None}

    def _put_slots(self, slots: Mapping[str, Params]) -> None:
        self._put(
            "slots", {f"{slot}/{name}": value for slot, values in slots.items() for name, value in values.items()}
        )

    def _get_slots(self) -> dict[str, Params]:
        slots: dict[str, Params] = {}
        for path, value in self._get("slots").items():
            slot, _, name = path.partition("/")
            slots.setdefault(slot, {})[name] = value
        return slots


def read_algorithm(name: str, hparams: Mapping[str, Any]) -> Algorithm:
    """Build the algorithm with the settings that a training was given; a list has a value for each position."""
    algorithm = build(name)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in hparams.items() if k in collect_rules(algorithm)}
    return with_settings(algorithm, given)


def scale_stages(algorithm: Algorithm, steps: int) -> list[int]:
    """Say after how many steps each stage ends, within the steps that there are: stages that come on top of a training
    elsewhere share them here."""
    if steps < 1:
        raise UsageError(f"steps is {steps}, but at least 1 is needed.")
    total = sum(share for share, _ in algorithm.stages())
    bounds = end_stages(algorithm, round(steps / max(1.0, total)))
    return [*bounds[:-1], max(steps, bounds[-1])]
