"""Where a group of trials runs, and the stack that it becomes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from seqdg.base.episode import Params
from seqdg.bench.trial import Group, Trial
from seqdg.data import Dataset
from seqdg.data.augment import ImageTransform, find_augmentation
from seqdg.nets import BuiltNet, Criterion, Net, build_net
from seqdg.training.inputs import Inputs
from seqdg.training.prefetch import fits, resident
from seqdg.training.protocol import split
from seqdg.training.sampler import torch_generator
from seqdg.training.stack import Job, Stack


@dataclass(frozen=True)
class Place:
    """A device, with the data set on it where it fits."""

    dataset: Dataset
    device: torch.device

    @cached_property
    def x(self) -> Any:
        x = self.dataset.x
        return resident(x, self.device) if fits(x, self.device) else x

    def net(self, trial: Trial) -> BuiltNet:
        """With its first weights."""
        return net_of(trial, self.dataset)

    def loss(self, trial: Trial) -> Criterion:
        return cross_entropy

    def inputs(self, trials: Sequence[Trial], transform: ImageTransform | None) -> Inputs:
        """The rows, for a stack of these trials."""
        return Inputs(self.x, self.dataset.y, self.device, trials[0].protocol.dtype, transform)


def net_of(trial: Trial, dataset: Dataset) -> BuiltNet:
    """The trial's net with its first weights."""
    shape = (dataset.shape[0], trial.size, trial.size) if dataset.is_image else dataset.shape
    return build_net(trial.net, shape, len(dataset.classes), torch_generator(trial.seed, "net"))


def stack_of(group: Group, place: Place) -> Stack:
    """The trials of a group with their data, net and first weights, on a device set to their precision."""
    protocol = group.trials[0].protocol
    _set_precision(protocol.precision)
    seeds = {trial.seed: trial for trial in group.trials}  # many differ in settings or held-out domain alone
    built = {seed: place.net(trial) for seed, trial in seeds.items()}
    first = built[group.trials[0].seed]
    net = Net(first.module, group.trials[0].batchnorm, place.loss(group.trials[0])).to(dtype=protocol.dtype)
    weights = {
        seed: {n: p.detach().to(protocol.dtype) for n, p in b.module.named_parameters()} for seed, b in built.items()
    }
    jobs = [_job(trial, net, weights[trial.seed], place) for trial in group.trials]
    transform = None
    if place.dataset.is_image:
        trial = group.trials[0]
        transform = ImageTransform(trial.size, first.normalization, find_augmentation(trial.augment))
    return Stack(net.to(place.device), place.inputs(group.trials, transform), jobs)


def _job(trial: Trial, net: Net, weights: Params, place: Place) -> Job:
    algorithm = trial.built()
    parts = split(place.dataset, trial.protocol, trial.held_out, trial.seed)
    algorithm.check(net, len(parts.train))
    params = algorithm.init(net, weights, len(parts.train), torch_generator(trial.seed, "extra"))
    return Job(algorithm, trial.protocol, parts, trial.seed, params)


def _set_precision(precision: str) -> None:
    """Also chooses kernels that give the same bits every time: a trial's numbers must not depend on its luck."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
