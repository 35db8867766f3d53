"""How a model is to be trained: the estimator's parameters, checked before any work starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from seqdg.base.errors import UsageError, unknown
from seqdg.core.algorithm import Algorithm
from seqdg.core.registry import build as build_algorithm
from seqdg.core.registry import list_algorithms
from seqdg.core.sequential import Sequential
from seqdg.core.settings import with_settings
from seqdg.data.augment import find_augmentation
from seqdg.nets import (
    BACKBONES,
    POLICIES,
    BuiltNet,
    NetSpec,
    Normalization,
    build_net,
    has_batchnorm,
    is_batchnorm_frozen,
)
from seqdg.results.criteria import CRITERIA
from seqdg.training.device import choose_device
from seqdg.training.protocol import Protocol
from seqdg.training.sampler import make_generator

AUTO = "auto"
NUMBERS = ("steps", "batch", "evaluations", "lr", "momentum", "weight_decay")
TRAINING = (*NUMBERS, "optimizer")
IMAGE_NET = "efficientnet-lite0"
CENTERED = Normalization((0.5,), (0.25,))  # of images for an mlp, which would learn slowly from what is never negative


@dataclass(frozen=True)
class Recipe:
    algorithm: Algorithm
    name: str  # of the algorithm
    net: NetSpec | nn.Module | None  # None: by the kind of input
    hidden: tuple[int, ...]  # widths of an mlp
    batchnorm: str  # policy, or AUTO
    protocol: Protocol
    validation: float  # share of each domain's rows by which the step is chosen
    stop: int | None  # take the weights after so many steps, instead of those that validate best
    criterion: str  # by which they validate best
    class_weight: Any
    image_size: int | None
    augment: str
    device: str
    seed: int

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise unknown("criterion", str(self.criterion), CRITERIA)
        if not 0 <= self.validation < 1:
            raise UsageError(f"validation is {self.validation}, but it must be a share from 0 to below 1.")
        if self.stop is not None and not (isinstance(self.stop, int) and 1 <= self.stop <= self.protocol.steps):
            raise UsageError(f"stop is {self.stop}, but it must be a number of steps from 1 to {self.protocol.steps}.")
        if self.batchnorm not in (AUTO, *POLICIES):
            raise unknown("BatchNorm policy", str(self.batchnorm), (AUTO, *POLICIES))
        if self.image_size is not None and (not isinstance(self.image_size, int) or self.image_size < 1):
            raise UsageError(f"image_size is {self.image_size}, but it must be a positive number of pixels.")
        find_augmentation(self.augment)

    def spec(self, is_image: bool) -> NetSpec | None:
        """How the net is built; None where it is the user's own module."""
        if isinstance(self.net, nn.Module):
            return None
        if self.net is not None:
            return self.net
        return NetSpec(IMAGE_NET, pretrained=True) if is_image else NetSpec("mlp", hidden=self.hidden)

    def built(self, shape: tuple[int, ...], classes: int, seed: int) -> BuiltNet:
        """The net with its first weights; the user's own module comes with them."""
        if isinstance(self.net, nn.Module):
            return BuiltNet(self.net, Normalization())
        spec = self.spec(is_image=len(shape) == 3)
        assert spec is not None
        built = build_net(spec, shape, classes, make_generator(seed, "net"))
        return replace(built, normalization=CENTERED) if spec.name == "mlp" and len(shape) == 3 else built

    def policy(self, module: nn.Module) -> str:
        """Of BatchNorm: a net that starts from ImageNet weights keeps their statistics, as frozen layers do."""
        if self.batchnorm != AUTO:
            return self.batchnorm
        if not has_batchnorm(module):
            return "none"
        spec = self.spec(is_image=True)
        if spec is None:
            return "frozen" if is_batchnorm_frozen(module) else "recalibrate"
        return "frozen" if spec.pretrained or spec.weights is not None else "recalibrate"

    def with_algorithm(self, name: str, algorithm: Algorithm) -> Recipe:
        return replace(self, name=name, algorithm=algorithm)


def recipe_of(parameters: Mapping[str, Any], seed: int) -> Recipe:
    """Of the estimator's parameters; `seed` is what its random_state gives."""
    p = {name: plain(value) for name, value in parameters.items()}
    for name in (*NUMBERS, "validation"):
        if isinstance(p[name], bool) or not isinstance(p[name], int | float):
            raise UsageError(f"{name} is {p[name]!r}, but it must be a number.")
    if not isinstance(p["hidden"], list | tuple):
        raise UsageError(
            f"hidden is {p['hidden']!r}, but it must be the widths of the hidden layers, such as (64, 32)."
        )
    if isinstance(p["class_weight"], str) and p["class_weight"] != "balanced":
        raise unknown("class weight", p["class_weight"], ("balanced",))
    name, algorithm = _algorithm(p["algorithm"], p["settings"] or {})
    training = {k: p[k] for k in TRAINING}
    hidden = tuple(p["hidden"])
    return Recipe(
        algorithm=algorithm,
        name=name,
        net=_net(p["net"], hidden),
        hidden=hidden,
        batchnorm=p["batchnorm"],
        protocol=Protocol(split="official", test="whole", **training),
        validation=p["validation"],
        stop=p["stop"],
        criterion=p["criterion"],
        class_weight=p["class_weight"],
        image_size=p["image_size"],
        augment=p["augment"],
        device=choose_device(str(p["device"])),
        seed=seed,
    )


def _algorithm(given: Any, settings: Any) -> tuple[str, Algorithm]:
    if not isinstance(settings, Mapping):
        raise UsageError(f"settings are names with values, such as {{'alpha': 0.1}}, not {settings!r}.")
    if isinstance(given, str):
        return given, build_algorithm(given, **settings)
    if isinstance(given, Algorithm):
        return name_of(given), with_settings(given, settings)
    raise UsageError(
        f"algorithm is {given!r}, but it must be a name, such as 'fo-s-mldg', or one that seqdg.build gives."
    )


def name_of(algorithm: Algorithm) -> str:
    """The registered name of its kind, or else that of its class."""

    def kind(a: Algorithm) -> tuple[type, ...]:
        return (Sequential, *kind(a.base)) if isinstance(a, Sequential) else (type(a),)

    own = kind(algorithm)
    return next((n for n in list_algorithms() if kind(build_algorithm(n)) == own), own[-1].__name__)


def _net(given: Any, hidden: tuple[int, ...]) -> NetSpec | nn.Module | None:
    if given is None or isinstance(given, NetSpec | nn.Module):
        return given
    if not isinstance(given, str):
        raise UsageError(
            f"net is {given!r}, but it must be a name, such as 'mlp' or 'resnet18', or your own nn.Module."
        )
    if given == "mlp":
        return NetSpec("mlp", hidden=hidden)
    backbone = BACKBONES.get(given)
    return NetSpec(given, pretrained=backbone is not None and backbone.find_installed_weights is not None)


def plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's; all else as it is."""
    return value.item() if isinstance(value, np.generic) or (isinstance(value, Tensor) and value.dim() == 0) else value


def seeded(random_state: Any) -> int:
    """A whole number from what scikit-learn takes for a random state."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise UsageError(f"random_state is {random_state!r}, but it must be a whole number of at least 0.") from None
