"""The recipe of a training: the estimator's parameters, checked before any work starts, and as JSON holds them.

`hidden`, `steps`, `domains_per_step` and `members` may be left to the data: they become numbers once the rows are
known, and a model's card has the numbers. `benchmarks/accuracy/defaults.py` measures what these rest on, and
docs/results/defaults.md has its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from torch import Tensor, nn

from seqdg.base import UsageError, choose_device, unknown
from seqdg.bench import (
    OwnEstimator,
    OwnEstimatorLearner,
    OwnSettings,
    find_learner,
    is_estimator,
    name_estimator,
)
from seqdg.core import (
    Algorithm,
    Settings,
    Wrapper,
    count_needed_evaluations,
    describe_settings,
    find_wrapper,
    flatten_settings,
    list_algorithms,
    list_layers,
    list_wrappers,
    strip_wrappers,
    use_own_names,
    with_settings,
)
from seqdg.core import build as build_algorithm
from seqdg.data import OPEN, QUANTILE, STANDARD, Dataset, find_augmentation
from seqdg.nets import (
    BACKBONES,
    POLICIES,
    BuiltNet,
    NetSpec,
    Normalization,
    build_net,
    get_published_dropout,
    has_batchnorm,
    is_batchnorm_frozen,
)
from seqdg.results import CRITERIA
from seqdg.training import Protocol, count_steps, make_generator

AUTO = "auto"
HIDDEN, STEPS, DOMAINS_PER_STEP, MEMBERS = "hidden", "steps", "domains_per_step", "members"
# What may be left to the data, and what stands in for it until they are known.
UNKNOWN = {HIDDEN: (32,), STEPS: 500, DOMAINS_PER_STEP: 0, MEMBERS: 1}
NUMBERS = ("steps", "batch", "evaluations", "lr", "momentum", "weight_decay", "warmup", "members", "domains_per_step")
TRAINING = (*NUMBERS, "optimizer", "schedule", "scaling", "calibrate")
IMAGE_NET = "efficientnet-lite0"
CENTERED = Normalization(
    (0.5,), (0.25,)
)  # of images for an mlp, which learns slowly from inputs that are never negative
WIDTHS = ((0, (32,)), (10_000, (128, 64)), (100_000, (256, 128)))  # widths from so many rows on
WIDTHS_FOR_NUMBERS = ((0, (32,)), (2_000, (64, 32)), *WIDTHS[1:])  # likewise, for regression
FEWEST, MOST = 500, 5000  # steps
PASSES = 3  # how often the steps meet every row
NETS = 4  # that predict together where they are small, as a table's are; otherwise one does
WEIGHTED = "weighted-ensemble"
SOME = 8  # domains that a step meets, of more; of fewer it meets all


@dataclass(frozen=True)
class Winner:
    """A candidate that is fitted on all domains, alone or as a member of a weighted ensemble."""

    algorithm: Any  # a name, or an unfitted estimator
    weight: float = 1.0  # as a member
    temperature: float = 1.0  # of its probabilities there
    settings: Mapping[str, Any] | None = None
    lr: float | None = None  # None: that of the estimator
    stop: int | None = None  # the steps whose weights are kept; None: those that validate best

    @property
    def name(self) -> str:
        return self.algorithm if isinstance(self.algorithm, str) else name_estimator(self.algorithm)


@dataclass(frozen=True)
class WeightedEnsemble:
    """Models of several kinds, whose calibrated probabilities (or numbers) are averaged by their weights.

    `seqdg.compare` makes one; as the `algorithm` of an estimator, its members are fitted to the same rows.
    """

    members: tuple[Winner, ...]

    def __post_init__(self) -> None:
        if not self.members or any(not member.weight > 0 for member in self.members):
            raise UsageError("A weighted ensemble has at least one member, each with a weight above 0.")


@dataclass(frozen=True)
class Recipe:
    algorithm: Settings  # an Algorithm, or the settings of a learner that is none
    name: str  # of the algorithm
    net: NetSpec | nn.Module | None  # None: by the kind of input
    hidden: tuple[int, ...]  # widths of an mlp
    batchnorm: str  # policy, or AUTO
    protocol: Protocol
    validation: float  # share of each domain's rows by which the step is chosen
    stop: int | None  # keep the weights after so many steps, instead of those that validate best
    criterion: str  # what the best step is chosen by
    class_weight: Any
    image_size: int | None
    augment: str
    device: str
    seed: int
    is_regression: bool = False  # numbers instead of classes
    auto: frozenset[str] = frozenset()  # what is left to the data, and not known yet

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise unknown("criterion", str(self.criterion), CRITERIA)
        if CRITERIA[self.criterion].is_of_numbers != self.is_regression:
            here, there = ("regression", "classification")[:: 1 if self.is_regression else -1]
            fitting = [name for name, unit in CRITERIA.items() if unit.is_of_numbers == self.is_regression]
            raise UsageError(
                f"{self.criterion} is for {there}, and this is {here}: choose one of {', '.join(fitting)}."
            )
        if not 0 <= self.validation < 1:
            raise UsageError(f"validation is {self.validation}, but it must be a share from 0 to below 1.")
        if isinstance(self.algorithm, Algorithm):
            self._check_steps(self.algorithm)
        elif self.stop is not None:
            raise UsageError(f"stop is {self.stop}, but {self.name} takes no steps: leave it out.")
        if self.batchnorm not in (AUTO, *POLICIES):
            raise unknown("BatchNorm policy", str(self.batchnorm), (AUTO, *POLICIES))
        if self.image_size is not None and (not isinstance(self.image_size, int) or self.image_size < 1):
            raise UsageError(f"image_size is {self.image_size}, but it must be a positive number of pixels.")
        if self.augment:
            find_augmentation(self.augment)

    def _check_steps(self, algorithm: Algorithm) -> None:
        """Check that there are as many steps and evaluations as the algorithm needs."""
        needed = count_needed_evaluations(algorithm)
        evaluations = min(self.protocol.evaluations, self.protocol.steps)
        if needed and not self.validation:
            raise UsageError(
                f"{self.name} reads the loss on validation rows, but validation is 0: set it to a share such as 0.2, "
                "or choose +ema or +sma."
            )
        if evaluations < needed:
            raise UsageError(
                f"{self.name} needs at least {needed} evaluations on validation rows, but there are {evaluations}: "
                "raise evaluations or steps, or choose +ema or +sma, which need none."
            )
        steps = count_steps(algorithm, self.protocol)
        if self.stop is None or STEPS in self.auto:
            return
        if not (isinstance(self.stop, int) and 1 <= self.stop <= steps):
            raise UsageError(f"stop is {self.stop}, but it must be a number of steps from 1 to {steps}.")

    def choose_spec(self, is_image: bool) -> NetSpec | None:
        """Say how to build the net; None where it is the user's own module."""
        if isinstance(self.net, nn.Module):
            return None
        if self.net is not None:
            return self.net
        if not is_image:
            return NetSpec("mlp", hidden=self.hidden)
        return NetSpec(IMAGE_NET, pretrained=True, dropout=get_published_dropout(IMAGE_NET))

    def build_net(self, shape: tuple[int, ...], classes: int, seed: int) -> BuiltNet:
        """Build the net with its first weights; the user's own module comes with them."""
        if isinstance(self.net, nn.Module):
            return BuiltNet(self.net, Normalization())
        spec = self.choose_spec(is_image=len(shape) == 3)
        assert spec is not None
        built = build_net(spec, shape, classes, make_generator(seed, "net"))
        return replace(built, normalization=CENTERED) if spec.name == "mlp" and len(shape) == 3 else built

    def choose_batchnorm(self, module: nn.Module) -> str:
        """Choose the policy: a net that starts from ImageNet weights keeps their statistics, as frozen layers do."""
        if self.batchnorm != AUTO:
            return self.batchnorm
        if not has_batchnorm(module):
            return "none"
        spec = self.choose_spec(is_image=True)
        if spec is None:
            return "frozen" if is_batchnorm_frozen(module) else "recalibrate"
        return "frozen" if spec.pretrained or spec.weights is not None else "recalibrate"

    def describe(self) -> dict[str, Any]:
        """Return the estimator's parameters, all but the net, as JSON holds them."""
        weight = self.class_weight
        pairs = [[to_plain(k), to_plain(v)] for k, v in weight.items()] if isinstance(weight, Mapping) else weight
        return {
            "algorithm": self.name,
            "settings": {
                name: _to_json(value)
                for name, value in flatten_settings(self.algorithm).items()
                if name in describe_settings(self.algorithm)
            },
            "hidden": list(self.hidden),
            "batchnorm": self.batchnorm,
            **{name: to_plain(getattr(self.protocol, name)) for name in TRAINING},
            "validation": to_plain(self.validation),
            "criterion": self.criterion,
            "stop": self.stop,
            **({"loss": self.protocol.loss} if self.is_regression else {"class_weight": pairs}),
            "image_size": self.image_size,
            "augment": self.augment,
            "random_state": self.seed,
        }


def read_parameters(description: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `Recipe.describe` returns as arguments of the estimator."""
    parameters = {**description, "settings": read_settings(description), "hidden": tuple(description["hidden"])}
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    return parameters


def read_settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """Read the algorithm's settings from what `Recipe.describe` returns."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in description["settings"].items()}


def make_recipe(parameters: Mapping[str, Any], seed: int, is_regression: bool = False) -> Recipe:
    """Check the estimator's parameters; `seed` is what its random_state gives."""
    p = {name: to_plain(value) for name, value in parameters.items()}
    auto = frozenset(name for name in UNKNOWN if isinstance(p[name], str) and p[name] == AUTO)
    p |= {name: UNKNOWN[name] for name in auto}
    for name in (*NUMBERS, "validation"):
        if isinstance(p[name], bool) or not isinstance(p[name], int | float):
            left = " or 'auto'" if name in UNKNOWN else ""
            raise UsageError(f"{name} is {p[name]!r}, but it must be a number{left}.")
    if not isinstance(p["hidden"], list | tuple):
        raise UsageError(
            f"hidden is {p['hidden']!r}, but it must be 'auto' or the widths of the hidden layers, such as (64, 32)."
        )
    class_weight = p.get("class_weight")
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise unknown("class weight", class_weight, ("balanced",))
    name, algorithm = _build_algorithm(p["algorithm"], p["settings"] or {})
    known = (*TRAINING, *(["loss"] if is_regression else []))
    training = {k: p[k] for k in known if k in p}  # a regressor has no probabilities to calibrate
    if not isinstance(algorithm, Algorithm):
        training |= {"members": 1, "calibrate": False, "scaling": find_scaling(name, algorithm)}  # it is fitted once
    elif training["scaling"] == OPEN:
        raise unknown("scaling", OPEN, (QUANTILE, STANDARD))  # a net cannot read what is missing
    hidden = tuple(p["hidden"])
    return Recipe(
        algorithm=algorithm,
        name=name,
        net=_read_net(p["net"], hidden),
        hidden=hidden,
        batchnorm=p["batchnorm"],
        protocol=Protocol(split="official", test="whole", **training),
        validation=p["validation"],
        stop=p["stop"],
        criterion=p["criterion"],
        class_weight=class_weight,
        image_size=p["image_size"],
        augment=p["augment"],
        device=choose_device(str(p["device"])),
        seed=seed,
        is_regression=is_regression,
        auto=auto,
    )


def adapt_recipe(recipe: Recipe, dataset: Dataset) -> Recipe:
    """Return the recipe with numbers in place of what is left to the data."""
    if not recipe.auto:
        return recipe
    rows, domains = len(dataset.y), len(dataset.domains)
    hidden, net, protocol = recipe.hidden, recipe.net, recipe.protocol
    if HIDDEN in recipe.auto:
        hidden = choose_widths(rows, dataset.is_regression)
        net = replace(net, hidden=hidden) if isinstance(net, NetSpec) and net.name == "mlp" else net
    if DOMAINS_PER_STEP in recipe.auto:
        protocol = replace(protocol, domains_per_step=SOME if domains > SOME else 0)
        protocol = meet_all_where_needed(protocol, recipe.algorithm)
    if MEMBERS in recipe.auto:
        spec = recipe.choose_spec(dataset.is_image)
        is_small = spec is not None and spec.name == "mlp" and not dataset.is_image
        protocol = replace(protocol, members=NETS if is_small and isinstance(recipe.algorithm, Algorithm) else 1)
    if STEPS in recipe.auto:
        protocol = replace(protocol, steps=choose_steps(rows, domains, protocol, dataset.is_image))
    return replace(recipe, hidden=hidden, net=net, protocol=protocol, auto=recipe.auto - {HIDDEN, STEPS, MEMBERS})


def meet_all_where_needed(protocol: Protocol, algorithm: Settings) -> Protocol:
    """Let every step meet all domains where the algorithm cannot do with some."""
    if isinstance(algorithm, Algorithm) and algorithm.needs_all:
        return replace(protocol, domains_per_step=0)
    return protocol


def choose_widths(rows: int, is_regression: bool = False) -> tuple[int, ...]:
    """Choose the widths of the hidden layers: more rows can fit more weights, and numbers need more than classes."""
    known = WIDTHS_FOR_NUMBERS if is_regression else WIDTHS
    return next(widths for least, widths in reversed(known) if rows >= least)


def choose_steps(rows: int, domains: int, protocol: Protocol, is_image: bool = False) -> int:
    """Choose the number of steps: those that meet every row PASSES times, in hundreds, from FEWEST to MOST."""
    if is_image:
        return FEWEST
    met = protocol.batch * protocol.count_domains(domains)
    return min(MOST, max(FEWEST, round(PASSES * rows / met / 100) * 100))


def _build_algorithm(algorithm: Any, settings: Any) -> tuple[str, Settings]:
    if not isinstance(settings, Mapping):
        raise UsageError(f"settings are names with values, such as {{'alpha': 0.1}}, not {settings!r}.")
    if isinstance(algorithm, str):
        return use_own_names(algorithm), find_learner(algorithm).build_settings(algorithm, **settings)
    if is_estimator(algorithm):
        name = name_estimator(algorithm)
        return name, OwnEstimatorLearner(OwnEstimator(algorithm)).build_settings(name, **settings)
    if isinstance(algorithm, Algorithm):
        return _find_name(algorithm), with_settings(algorithm, settings)
    if isinstance(algorithm, WeightedEnsemble):
        raise UsageError("A weighted ensemble is several algorithms, and this works on one: name it.")
    raise UsageError(
        f"algorithm is {algorithm!r}, but it must be a name, such as 'fo-s-mldg', one that seqdg.build gives, or an "
        "estimator of scikit-learn."
    )


def find_scaling(name: str, settings: Settings) -> str:
    """Find how a learner that trains no net wants the numbers of a table scaled."""
    return STANDARD if isinstance(settings, OwnSettings) else find_learner(name).scaling


def _find_name(algorithm: Algorithm) -> str:
    """Find the registered name of an algorithm's classes, or else take the name of its class."""
    wrappers = {find_wrapper(name): name for name in list_wrappers()}
    inside = strip_wrappers(algorithm)
    around = [layer for layer in list_layers(algorithm) if isinstance(layer, Wrapper)]
    if any(type(layer) not in wrappers for layer in around):
        return type(algorithm).__name__
    classes = [type(layer) for layer in list_layers(inside)]
    names = (n for n in list_algorithms() if [type(layer) for layer in list_layers(build_algorithm(n))] == classes)
    return "+".join((next(names, classes[-1].__name__), *(wrappers[type(layer)] for layer in reversed(around))))


def _read_net(net: Any, hidden: tuple[int, ...]) -> NetSpec | nn.Module | None:
    if net is None or isinstance(net, NetSpec | nn.Module):
        return net
    if not isinstance(net, str):
        raise UsageError(f"net is {net!r}, but it must be a name, such as 'mlp' or 'resnet18', or your own nn.Module.")
    if net == "mlp":
        return NetSpec("mlp", hidden=hidden)
    backbone = BACKBONES.get(net)
    pretrained = backbone is not None and backbone.find_weights is not None
    return NetSpec(net, pretrained=pretrained, dropout=get_published_dropout(net))


def to_plain(value: Any) -> Any:
    """Turn a number of numpy or torch into Python's; return anything else as it is."""
    return value.item() if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.dim() == 0) else value


def _to_json(value: Any) -> Any:
    if isinstance(value, OwnEstimator):
        return repr(value)
    return [to_plain(v) for v in value] if isinstance(value, tuple) else to_plain(value)


def draw_seed(random_state: Any) -> int:
    """Draw a seed from what scikit-learn takes for a random state; a whole number is the seed itself."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise UsageError(f"random_state is {random_state!r}, but it must be a whole number of at least 0.") from None
