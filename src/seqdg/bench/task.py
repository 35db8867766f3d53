"""A trial: one algorithm, one choice of held-out domains, one seed, and how trials are packed into groups. A task: the
rows to learn from, how they become a net's inputs, the net and its first weights, the loss.

A benchmark file makes a task, and so do a user's table, folder or arrays. It is small and can be pickled: workers load
the rows themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from seqdg.base import TARGET, UsageError, collect_checkouts, describe_fields, measure_free_memory, restore_fields
from seqdg.core import (
    Algorithm,
    Averaging,
    adapt_to_path,
    build,
    flatten_settings,
    restore_settings,
    shorten,
    split_chain,
)
from seqdg.data import (
    Dataset,
    ImageTransform,
    Scaling,
    derive,
    describe_augmentation,
    find_augmentation,
    join_columns,
    keep_as_is,
    learn_scaling,
    load_data,
)
from seqdg.nets import BuiltNet, Criterion, Net, NetSpec, Normalization, build_net, check_outputs, shorten_net
from seqdg.results import VERSION, make_key
from seqdg.training import (
    AUTO,
    Groups,
    Inputs,
    NumberLoss,
    Protocol,
    RowWeighted,
    Saving,
    TargetScale,
    find_number_loss,
    fits_on,
    learn_target_scale,
    list_seeds,
    list_sources,
    make_generator,
    make_loss,
    move_to_device,
    split_rows,
)

READY = 2**26  # numbers: a quarter of a GiB, for rows that are scaled, or images that are resized, before training
KEPT = 2**28  # bytes of weights, at most, of the nets that a process keeps for the groups that follow
LARGER = 4  # times what images take as they are stored, at most: as they enter the net, bytes are floats
SHARE = 0.25  # of the free memory, at most, for images that are resized before training
STANDARDIZE, COMBAT = "standardize", "combat"
HARMONIZATIONS = {  # what harmonizes the rows of each domain, after the name of a learner that trains no net
    STANDARDIZE: "Mean and deviation of every domain made alike.",
    COMBAT: "ComBat: mean and deviation made alike as far as a domain's rows say (Johnson, Li and Rabinovic, 2007).",
}
ReadProgress = Callable[[int, int], None]  # files read, of how many
Item = TypeVar("Item")


@dataclass(frozen=True)
class Trial:
    """Everything that decides a trial's numbers. Only the first held-out domain is the target; a second one is held
    out with it for selection by leave-one-out within the sources. A fixed split has all its test domains held out."""

    data: str  # fingerprint of the data set
    net: NetSpec
    batchnorm: str  # policy
    weights: str | None  # sha256 of the weight file that the net starts from
    algorithm: str
    settings: tuple[tuple[str, str], ...]  # as text, by name, as `describe_settings` gives them
    protocol: Protocol
    held_out: tuple[str, ...]
    seed: int
    sources: int  # how many domains there are to learn from where only one is held out
    size: int = 0  # side of the images that enter the net
    augment: str = ""  # recipe, for images
    code: str = ""  # hash of the user's own code that builds the net
    instance: Algorithm | None = field(default=None, compare=False)  # the algorithm, where no name builds it
    estimator: Any = field(default=None, compare=False)  # of scikit-learn's kind, where the user gave an object

    @property
    def short_name(self) -> str:
        """The algorithm's name without the file that it comes from."""
        return shorten(self.algorithm)

    def description(self) -> dict[str, Any]:
        """Canonical: the same for the same trial, whatever the machine. What was added later is left out while it has
        the value that means "as before"."""
        net = {k: v for k, v in describe_fields(self.net).items() if k != "weights"}
        net["name"] = shorten_net(self.net.name)
        return {
            "version": VERSION,
            "data": self.data,
            "net": {
                **net,
                "batchnorm_policy": self.batchnorm,
                "weights": self.weights,
                **({"code": self.code} if self.code else {}),
            },
            "algorithm": self.short_name,
            "settings": dict(self.settings),
            "protocol": describe_fields(self.protocol),
            "held_out": list(self.held_out),
            "seed": self.seed,
            "size": self.size,
            "augment": describe_augmentation(self.augment),
            **({"together": self.together} if self.together else {}),
            **({"unlabeled": True} if self.uses_target else {}),
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], algorithm: str, sources: int, weights: Any, net_name: str = ""
    ) -> Trial:
        """Rebuild the trial that is so described; the inverse of `description`.

        algorithm: its name, with the file that it comes from.   sources: how many domains there are but one.
        weights: the file that the net starts from.   net_name: the net's, with the file that it comes from.
        """
        net = dict(description["net"])
        policy, digest, code = net.pop("batchnorm_policy"), net.pop("weights"), net.pop("code", "")
        net["name"] = net_name or net["name"]
        same = {name: description[name] for name in ("data", "seed", "size", "augment")}
        return cls(
            **same,
            net=NetSpec(**restore_fields(NetSpec, net), weights=weights),
            batchnorm=policy,
            weights=digest,
            code=code,
            algorithm=algorithm,
            settings=tuple(sorted(description["settings"].items())),
            protocol=Protocol(**restore_fields(Protocol, description["protocol"])),
            held_out=tuple(description["held_out"]),
            sources=sources,
        )

    @cached_property
    def key(self) -> str:
        return make_key(self.description())

    @cached_property
    def together(self) -> int | str:
        """How many rows of a domain are predicted at once, or "all", where the algorithm is transductive; else 0."""
        if self.is_harmonized:
            return "all"
        try:
            return self.build_algorithm().together
        except UsageError:  # the name is that of a learner, which is no algorithm
            return 0

    @cached_property
    def uses_target(self) -> bool:
        """Whether it trains on rows of the held-out domain, without labels."""
        if self.is_harmonized:
            return False
        try:
            return TARGET in self.build_algorithm().uses
        except UsageError:  # a learner's
            return False

    @property
    def is_harmonized(self) -> bool:
        """Whether a learner that trains no net is fitted to harmonized rows."""
        return self.instance is None and split_chain(self.algorithm)[-1] in HARMONIZATIONS

    def build_algorithm(self) -> Algorithm:
        """Build the algorithm with its settings, for a shorter path where more than one domain is held out."""
        if self.instance is not None:
            return self.instance
        fixed = len(self.protocol.train_domains)
        lengths = (fixed or self.sources, fixed or self.sources + 1 - len(self.held_out))
        usual, path = map(self.protocol.count_domains, lengths)
        return _build(self.algorithm, self.settings, usual, path)

    @cached_property
    def members(self) -> tuple[Trial, ...]:
        """The trials that predict together as this one: itself, where it is no ensemble."""
        count = self.protocol.members
        if count == 1:
            return (self,)
        alone = replace(self, protocol=replace(self.protocol, members=1))
        return tuple(replace(alone, seed=seed) for seed in list_seeds(self.seed, count))

    @cached_property
    def training(self) -> Trial:
        """The trial whose training gives this one's weights: the same without the average around the algorithm."""
        if self.is_harmonized or (self.instance is None and len(split_chain(self.algorithm)) == 1):
            return self
        algorithm = self.build_algorithm()
        if not isinstance(algorithm, Averaging):
            return self
        kept = flatten_settings(algorithm.base)
        return replace(
            self,
            algorithm="+".join(split_chain(self.algorithm)[:-1]),
            settings=tuple((name, text) for name, text in self.settings if name in kept),
            instance=None if self.instance is None else algorithm.base,
        )


@lru_cache(maxsize=4096)
def _build(name: str, settings: tuple[tuple[str, str], ...], usual: int, path: int) -> Algorithm:
    return adapt_to_path(restore_settings(build(name), dict(settings)), usual, path)


@dataclass(frozen=True)
class Group:
    """Trials that are trained together."""

    trials: tuple[Trial, ...]
    compiles: bool = False  # whether their step is compiled

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(" ".join(trial.key for trial in self.trials).encode()).hexdigest()[:24]

    @cached_property
    def trainings(self) -> tuple[tuple[Trial, ...], ...]:
        """Its trials, those that share a training together."""
        return tuple(tuple(trials) for trials in _collect_trainings(self.trials).values())


def group_trials(trials: Sequence[Trial], capacity: int, share: Callable[[Trial], Hashable]) -> tuple[Group, ...]:
    """Pack the whole plan into groups of at most `capacity` trainings, always the same way.

    share: what trials must have in common to be trained together, the number of members of an ensemble among it. Trials
    that share a training stay together, and so do the members of an ensemble, which are as many trainings.
    """
    packed = []
    for sharing in collect_by(trials, share).values():
        trainings = list(_collect_trainings(sharing).values())
        count = -(-len(trainings) // max(1, capacity // sharing[0].protocol.members))
        size = -(-len(trainings) // count)
        parts = (trainings[i : i + size] for i in range(0, len(trainings), size))
        packed += [Group(tuple(trial for one in part for trial in one)) for part in parts]
    return tuple(packed)


def join_trainings(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Order trials as a group has them: those that share a training next to each other."""
    return tuple(trial for one in _collect_trainings(trials).values() for trial in one)


def collect_by(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Collect what has the same key, in the order in which it comes."""
    parts: dict[Any, list[Item]] = {}
    for item in items:
        parts.setdefault(key(item), []).append(item)
    return parts


def _collect_trainings(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Collect trials by the key of their training."""
    return collect_by(trials, lambda trial: trial.training.key)


@dataclass(frozen=True)
class RowsOnDisk:
    """Files below a folder, as the [data] table of a benchmark describes them; read once.

    A pickled copy describes the files alone: the process that gets it reads them itself.
    """

    name: str
    table: Mapping[str, Any] = field(hash=False)
    root: Path | None = None
    allow_partial: bool = False
    held_out: tuple[str, ...] | None = None  # the domains that will be held out in turn; None: every one
    sample: int | None = None  # rows of every domain, as `Dataset.sample` takes them; None: all

    def load(self, on_progress: ReadProgress | None = None) -> Dataset:
        if "_dataset" not in self.__dict__:
            dataset = load_data(self.table, self.root, self.allow_partial, self.name, on_progress, self.held_out)
            dataset = dataset if self.sample is None else dataset.sample(self.sample)
            object.__setattr__(self, "_dataset", dataset)
        loaded: Dataset = self.__dict__["_dataset"]
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_dataset"}


@dataclass(frozen=True)
class RowsInMemory:
    """Rows that the user holds already."""

    dataset: Dataset

    def load(self, on_progress: ReadProgress | None = None) -> Dataset:
        return self.dataset


RowSource = RowsOnDisk | RowsInMemory  # where a task's rows come from

_keeping = Lock()  # of nets: models may be fitted in threads


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned, from which rows, by which net.

    numbers: of a table that is not scaled yet, how many of its first inputs are numbers; every trial scales them by
    constants of its own sources. None: as the data set says, or else rows enter the net as they are.
    """

    name: str
    rows: RowSource
    net: NetSpec
    batchnorm: str  # policy
    protocol: Protocol
    size: int = 0  # side of the images that enter the net; 0: as they are stored
    augment: str = ""  # recipe, for images
    module: nn.Module | None = None  # the user's own net, with its first weights; then `net` is not used
    normalization: Normalization | None = None  # of images, instead of the net's own
    class_weight: Any = None  # None, "balanced", or a weight by class
    numbers: int | None = None
    title: str = ""

    def dataset(self, on_progress: ReadProgress | None = None) -> Dataset:
        return self.rows.load(on_progress)

    def make_trial(
        self,
        name: str,
        settings: Mapping[str, str],
        protocol: Protocol,
        held_out: tuple[str, ...],
        seed: int,
        weights: str | None = None,
        code: str = "",
        algorithm: Algorithm | None = None,
        net: NetSpec | None = None,
        estimator: Any = None,
    ) -> Trial:
        """Describe one trial of this task; settings are text, for a path through all domains but one.

        weights: sha256 of the file that the net starts from.   code: hash of the user's own code that builds it.
        algorithm: itself, where no name builds it.
        net: where it is not the task's but one of its own, with BatchNorm as that has it.
        estimator: of the user's own, where no name makes it.
        """
        dataset = self.dataset()
        return Trial(
            data=dataset.fingerprint,
            net=net or self.net,
            batchnorm="own" if net else self.batchnorm,
            weights=None if net else weights,
            code="" if net else code,
            algorithm=name,
            settings=tuple(sorted(settings.items())),
            protocol=protocol,
            held_out=held_out,
            seed=seed,
            sources=len(dataset.domains) - 1,
            size=(self.size or dataset.shape[-1]) if dataset.is_image else 0,
            augment=self.augment if dataset.is_image else "",
            instance=algorithm,
            estimator=estimator,
        )

    def find_net(self, trial: Trial) -> BuiltNet:
        """Return the net of a trial with its first weights, which a process builds once for all trials with this net
        and seed, as long as those that it keeps take little memory. Nothing changes the module: it is shared."""
        nets: dict[Hashable, BuiltNet] = derive(self, "nets", dict)
        key = trial.net, trial.size, trial.seed
        if (kept := nets.get(key)) is not None:
            return kept
        built = self.build_net(trial)
        size = _count_bytes(built)
        with _keeping:
            while nets and size + sum(map(_count_bytes, nets.values())) > KEPT:
                nets.pop(next(iter(nets)))
            if size <= KEPT:
                nets[key] = built
        return built

    def build_net(self, trial: Trial) -> BuiltNet:
        """Build the net of a trial with its first weights."""
        if self.module is not None:
            return BuiltNet(self.module, self.normalization or Normalization())
        dataset = self.dataset()
        shape = (dataset.shape[0], trial.size, trial.size) if dataset.is_image else dataset.shape
        built = build_net(trial.net, shape, dataset.outputs, make_generator(trial.seed, "net"))
        if built.code:
            x = torch.zeros(2, *shape) if dataset.is_image else torch.as_tensor(dataset.x[:2])
            x = x.float() if x.is_floating_point() else x
            was = built.module.training
            check_outputs(f"The net of {trial.net.name}", built.module.eval(), x, dataset.outputs)
            built.module.train(was)
        return built if self.normalization is None else replace(built, normalization=self.normalization)

    def make_loss(self, trial: Trial, device: torch.device) -> Criterion:
        """Make the loss; class weights follow from the training rows of the trial's sources."""
        loss: Criterion | None = self.make_number_loss(trial)
        dataset = self.dataset()
        if loss is None:
            split = split_rows(dataset, trial.protocol, trial.held_out, trial.seed)
            loss = make_loss(self.class_weight, [dataset.y[rows] for rows in split.train], dataset.classes, device)
        return loss if dataset.weight is None else RowWeighted(loss)

    def make_number_loss(self, trial: Trial) -> NumberLoss | None:
        """Make the loss of numbers; None where there are classes. A UsageError says where another is asked for."""
        if self.dataset().is_regression:
            if self.class_weight is not None:
                raise UsageError(f"{self.name} is a regression task, without classes to weigh: leave class_weight out.")
            return find_number_loss(trial.protocol.loss)
        if trial.protocol.loss != AUTO:
            raise UsageError(
                f"loss is '{trial.protocol.loss}', a loss of numbers, and {self.name} has classes, whose loss is "
                "cross-entropy: leave it out."
            )
        return None

    def make_inputs(
        self, trials: Sequence[Trial], normalization: Normalization, device: torch.device, prepares: bool = True
    ) -> Inputs:
        """Make the inputs of a stack of trials.

        normalization: of images, as the net wants it.
        prepares: on a CPU, resize images now, all of them, where every step would resize them in the same way and they
        fit into memory. The numbers are the same to the bit.
        """
        dataset, first = self.dataset(), trials[0]
        x, dtype = self._move_rows(dataset, device), first.protocol.dtype
        sources = [list_sources(dataset, trial.held_out, trial.protocol) for trial in trials]
        make_inputs = partial(
            Inputs,
            groups=None if dataset.group is None else Groups(dataset.group, len(dataset.groups)),
            target=find_target_scale(dataset, sources),
            weight=weigh_rows(dataset),
        )
        if dataset.is_image:
            transform = ImageTransform(first.size, normalization, find_augmentation(first.augment))
            inputs = make_inputs(x, dataset.y, device, dtype, transform)
            inputs.prepared = _prepare_images(dataset, inputs, transform) if prepares else None
            return inputs
        numbers = dataset.numbers if self.numbers is None else self.numbers
        if numbers is None:
            return make_inputs(x, dataset.y, device, dtype)
        kinds = list(dict.fromkeys(sources))  # trials with the same sources have the same constants
        each = [_find_constants(dataset, kind, numbers, first.protocol.scaling) for kind in kinds]
        scaling = Scaling(*(torch.stack(c).to(device, dtype) for c in zip(*each, strict=True)))
        kind = torch.tensor([kinds.index(s) for s in sources], device=device)
        if len(kinds) * x.numel() <= READY:  # beforehand
            versions = scaling.in_blocks(x.to(dtype).expand(len(kinds), *x.shape))  # (kind, row, input)
            return make_inputs(versions.flatten(0, 1), dataset.y, device, dtype, first_row=kind * len(x))
        per_trial = Scaling(*(c.index_select(0, kind) for c in scaling))
        return make_inputs(x, dataset.y, device, dtype, scaling=per_trial)

    def _move_rows(self, dataset: Dataset, device: torch.device) -> Any:
        """Keep all rows on the device where they fit. This is decided once per process: later there is less room."""
        rows = derive(
            dataset, device, lambda: move_to_device(dataset.x, device) if fits_on(dataset.x, device) else None
        )
        return dataset.x if rows is None else rows


def draw_examples(task: Task, most: int = 64) -> tuple[Net, list[tuple[Tensor, Tensor]], int]:
    """Return the net of a task, some rows of each domain as they enter it (row, *input) with their labels, and the
    number of classes."""
    dataset, generator = task.dataset(), torch.Generator().manual_seed(0)
    if dataset.is_regression:
        raise UsageError(f"{dataset.name} is a regression task, and the contract is checked with classes.")
    held_out = (dataset.domains[-1],)
    trial = task.make_trial("agg", {}, task.protocol, held_out, 0)
    built = task.find_net(trial)
    inputs = task.make_inputs([trial], built.normalization, torch.device("cpu"), prepares=False)
    examples = []
    for domain in dataset.domains:
        rows = dataset.rows(domain)
        x, y = inputs.serve(rows[torch.randperm(len(rows), generator=generator)[:most]].unsqueeze(0))
        examples.append((x.squeeze(0), y.squeeze(0)))
    return Net(built.module, task.batchnorm), examples, dataset.outputs


@dataclass(frozen=True)
class Session:
    """What every worker gets: it is small and can be pickled."""

    task: Task
    device: str = "cpu"
    saving: Saving = field(default=Saving())
    checkouts: Mapping[str, str] = field(default_factory=collect_checkouts)  # of other projects


def _count_bytes(net: BuiltNet) -> int:
    return sum(weight.nbytes for weight in net.module.state_dict().values())


def _prepare_images(dataset: Dataset, inputs: Inputs, transform: ImageTransform) -> Tensor | None:
    """Return all images as they enter the net; None where each step changes them, where none is resized, or where they
    take too much memory. A GPU resizes them at every step.

    A process keeps those of the last transform, per data set, for the groups that follow.
    """
    is_resized = tuple(dataset.shape[1:]) != (transform.size, transform.size)
    if transform.is_random or not is_resized or inputs.device.type != "cpu":
        return None
    how = transform, inputs.dtype
    kept = derive(dataset, "images", dict)  # the images of the last transform, by that
    if how not in kept:
        kept.clear()  # before others take its place in memory
        kept[how] = inputs.prepare_rows() if _has_room(dataset, inputs, transform.size) else None
    images: Tensor | None = kept[how]
    return images


def _has_room(dataset: Dataset, inputs: Inputs, size: int) -> bool:
    """Say whether all images, with sides of this size, may be kept beside the stored ones."""
    numbers = len(dataset.y) * dataset.shape[0] * size**2
    needed, free = numbers * inputs.dtype.itemsize, measure_free_memory()
    fits = free is None or needed <= SHARE * free
    return numbers <= READY and needed <= LARGER * dataset.x.nbytes and fits


def weigh_rows(dataset: Dataset) -> Tensor | None:
    """Return the weights of rows for training on minibatches of equal size from every domain: 1 on average over the
    training rows of each domain. None where all weigh the same."""
    if dataset.weight is None:
        return None
    weight = dataset.weight.clone()
    trains = torch.ones(len(weight), dtype=torch.bool) if dataset.validation is None else ~dataset.validation
    for domain in dataset.domains:
        rows = dataset.rows(domain)
        weight[rows] /= weight[rows[trains[rows]]].mean()
    return weight


def find_target_scale(dataset: Dataset, sources: Sequence[tuple[str, ...]]) -> TargetScale | None:
    """Say where the targets lie in the sources of each trial; None where there are classes."""
    if not dataset.is_regression:
        return None

    def learn(names: tuple[str, ...]) -> tuple[float, float]:
        return learn_target_scale(dataset.y[torch.cat([dataset.rows(name) for name in names])])

    each = [derive(dataset, ("target", names), partial(learn, names)) for names in sources]
    location, spread = torch.tensor(each, dtype=torch.float64).T
    return TargetScale(location.contiguous(), spread.contiguous())


def _find_constants(dataset: Dataset, sources: tuple[str, ...], numbers: int, how: str) -> Scaling:
    """Learn the constants of a trial's sources once. A category that they do not have is as unknown as any other."""

    def learn() -> Scaling:
        x = dataset.x[torch.cat([dataset.rows(name) for name in sources])]
        scaling = learn_scaling(x[:, :numbers], how)
        return join_columns([scaling, keep_as_is((x[:, numbers:] != 0).any(0), scaling)])

    constants: Scaling = derive(dataset, (sources, numbers, how), learn)
    return constants
