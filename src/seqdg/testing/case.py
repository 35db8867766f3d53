"""What the checks look at: an algorithm, a small net, and episodes and weights drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from seqdg.base import tree
from seqdg.base.episode import Episode, Params
from seqdg.base.errors import UsageError
from seqdg.core import Algorithm
from seqdg.nets.net import Net

INPUTS, CLASSES, BATCH = 4, 3, 6


class Violation(Exception):
    """What breaks the contract, in a sentence that does not name the check."""


def build_nets() -> dict[str, Net]:
    """Build nets in float64, smooth, so that nothing is inert by chance."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(INPUTS, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES))
        norm = nn.Sequential(nn.Linear(INPUTS, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, CLASSES))
    return {
        "an MLP": Net(plain.double(), "none"),
        "an MLP with BatchNorm": Net(norm.double(), "recalibrate"),
    }


@dataclass(frozen=True)
class Case:
    """One algorithm on one net with so many source domains."""

    algorithm: Algorithm
    net: Net
    sources: int

    def init_weights(self, seed: int = 0, algorithm: Algorithm | None = None) -> Params:
        """Return the weights that `init` makes of the net's."""
        kind, generator = algorithm or self.algorithm, torch.Generator().manual_seed(seed)
        return kind.init(self.net, self.net.params(), self.sources, generator)

    def draw_weights(self, seed: int = 0, algorithm: Algorithm | None = None) -> Params:
        """Draw weights away from the start, where branches are equal and regularizers vanish."""
        noise = torch.Generator().manual_seed(seed + 1000)
        return {
            name: w + 0.3 * torch.randn(w.shape, generator=noise, dtype=w.dtype)
            for name, w in self.init_weights(seed, algorithm).items()
        }

    def draw_episode(self, seed: int = 0) -> Episode:
        """Draw an episode half-way through the training, with the domains in a random order."""
        g = torch.Generator().manual_seed(seed + 2000)
        shape = (self.sources, BATCH)
        shift = torch.arange(self.sources, dtype=torch.float64).reshape(-1, 1, 1)
        return Episode(
            x=torch.randn((*shape, INPUTS), generator=g, dtype=torch.float64) + 0.2 * shift,
            y=torch.randint(CLASSES, shape, generator=g),
            domain=torch.randperm(self.sources, generator=g),
            progress=torch.rand((), generator=g, dtype=torch.float64) * 0.2 + 0.4,
            key=torch.randint(2**62, (), generator=g),
        )

    def draw_probe(self, seed: int = 0) -> Tensor:
        """Draw inputs (batch, *input) of a domain that no episode holds."""
        return torch.randn((8, INPUTS), generator=torch.Generator().manual_seed(seed + 3000), dtype=torch.float64)


def stack_trials(trials: Sequence[tuple[Params, Episode, Tensor]]) -> tuple[Params, Episode, Tensor]:
    """Stack weights, episodes and inputs of several trials: each tensor gets a first axis of trials."""
    params, episodes, inputs = zip(*trials, strict=True)
    return tree.stack(params), Episode(*map(torch.stack, zip(*episodes, strict=True))), torch.stack(inputs)


def count_stages(algorithm: Algorithm) -> int:
    return len(algorithm.stages())


def compute_direction(
    algorithm: Algorithm, stage: int, net: Net, params: Params, episode: Episode
) -> tuple[Params, Tensor]:
    """Return direction and loss of one stage."""
    return algorithm.stages()[stage][1].gradient(net, params, episode)


def predict_deployed(algorithm: Algorithm, net: Net, params: Params, x: Tensor) -> Tensor:
    """Return logits of the deployed weights, with the BatchNorm statistics of x."""
    deployed = algorithm.deploy(params)
    return algorithm.predict(net, {**deployed, **algorithm.statistics(net, deployed, x)}, x)


def compute_everything(
    algorithm: Algorithm, net: Net, params: Params, episode: Episode, x: Tensor
) -> dict[str, Tensor]:
    """Return all that training and serving ask of an algorithm, each value by what it is."""
    values = {}
    for k, (_, stage) in enumerate(algorithm.stages()):
        direction, values[f"the loss of stage {k + 1}"] = stage.gradient(net, params, episode)
        values |= {f"the direction of stage {k + 1} at '{name}'": d for name, d in direction.items()}
        entered = stage.enter(net, params)
        values |= {f"'{name}' as stage {k + 1} begins": w for name, w in entered.items()}
    return values | {"the prediction": predict_deployed(algorithm, net, params, x)}


def measure_difference(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> tuple[str, float]:
    """Return where two trees differ most and by how much, relative to the largest entry of the second; infinity where
    names or shapes differ."""
    for name in {**a, **b}:
        if name not in a or name not in b or a[name].shape != b[name].shape:
            return name, float("inf")
    size = max((float(v.abs().max()) for v in b.values()), default=0.0) or 1.0
    apart = {name: float((v - b[name]).abs().max()) / size for name, v in a.items()}
    if not apart:
        return "", 0.0
    name = max(apart, key=lambda n: (apart[n] != apart[n], apart[n]))
    return name, apart[name] if apart[name] == apart[name] else float("inf")


def assert_same(got: Mapping[str, Tensor], want: Mapping[str, Tensor], what: str, tolerance: float = 1e-9) -> None:
    name, apart = measure_difference(got, want)
    if apart > tolerance:
        raise Violation(f"{what}: {name} differs by {apart:.1e} of the largest entry.")


def find_source_count(algorithm: Algorithm, net: Net) -> int:
    """Return the fewest source domains, three or more, that the algorithm takes with its settings."""
    message = ""
    for sources in range(3, 9):
        try:
            algorithm.check(net, sources)
        except UsageError as error:
            message = message or str(error)
        else:
            return sources
    raise Violation(f"it takes no number of source domains from 3 to 8; for 3 it says: {message}")


def format_algorithm(algorithm: Algorithm) -> str:
    """`Sequential(MLDG)`"""
    inner = [format_algorithm(v) for f in fields(algorithm) if isinstance(v := getattr(algorithm, f.name), Algorithm)]
    return type(algorithm).__name__ + (f"({', '.join(inner)})" if inner else "")
