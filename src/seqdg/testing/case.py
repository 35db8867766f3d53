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


class Broken(Exception):
    """What a check found, without the words that say which check it was."""


def nets() -> dict[str, Net]:
    """In float64, smooth, so that nothing is inert by chance."""
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

    def initial(self, seed: int = 0, algorithm: Algorithm | None = None) -> Params:
        """What `init` adds to the net's own weights."""
        kind, generator = algorithm or self.algorithm, torch.Generator().manual_seed(seed)
        return kind.init(self.net, self.net.params(), self.sources, generator)

    def weights(self, seed: int = 0, algorithm: Algorithm | None = None) -> Params:
        """Away from the start, where branches are equal and regularizers vanish."""
        noise = torch.Generator().manual_seed(seed + 1000)
        return {
            name: w + 0.3 * torch.randn(w.shape, generator=noise, dtype=w.dtype)
            for name, w in self.initial(seed, algorithm).items()
        }

    def episode(self, seed: int = 0) -> Episode:
        """Half-way through the training, the domains in a random order."""
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

    def probe(self, seed: int = 0) -> Tensor:
        """(batch, *input) of a domain that no episode holds."""
        return torch.randn((8, INPUTS), generator=torch.Generator().manual_seed(seed + 3000), dtype=torch.float64)


def stack(trials: Sequence[tuple[Params, Episode, Tensor]]) -> tuple[Params, Episode, Tensor]:
    """Weights, episodes and inputs of several trials, each tensor with a first axis of trials."""
    params, episodes, inputs = zip(*trials, strict=True)
    return tree.stack(params), Episode(*map(torch.stack, zip(*episodes, strict=True))), torch.stack(inputs)


def stage_count(algorithm: Algorithm) -> int:
    return len(algorithm.stages())


def step(algorithm: Algorithm, stage: int, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
    """Direction and loss of one stage."""
    return algorithm.stages()[stage][1].gradient(net, params, episode)


def served(algorithm: Algorithm, net: Net, params: Params, x: Tensor) -> Tensor:
    """Logits of the deployed weights, whose BatchNorm statistics are those of x."""
    deployed = algorithm.deploy(params)
    return algorithm.predict(net, {**deployed, **algorithm.statistics(net, deployed, x)}, x)


def everything(algorithm: Algorithm, net: Net, params: Params, episode: Episode, x: Tensor) -> dict[str, Tensor]:
    """All that training and serving ask of an algorithm, by what it is."""
    found = {}
    for k, (_, stage) in enumerate(algorithm.stages()):
        direction, found[f"the loss of stage {k + 1}"] = stage.gradient(net, params, episode)
        found |= {f"the direction of stage {k + 1} at '{name}'": d for name, d in direction.items()}
        entered = stage.enter(net, params)
        found |= {f"'{name}' as stage {k + 1} begins": w for name, w in entered.items()}
    return found | {"the prediction": served(algorithm, net, params, x)}


def difference(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> tuple[str, float]:
    """Where two trees differ most and by how much, against the largest entry of the second; infinitely in shape."""
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
    name, apart = difference(got, want)
    if apart > tolerance:
        raise Broken(f"{what}: {name} differs by {apart:.1e} of the largest entry.")


def enough(algorithm: Algorithm, net: Net) -> int:
    """The fewest source domains, three or more, that the algorithm takes as it is set."""
    message = ""
    for sources in range(3, 9):
        try:
            algorithm.check(net, sources)
        except UsageError as error:
            message = message or str(error)
        else:
            return sources
    raise Broken(f"it takes no number of source domains from 3 to 8; for 3 it says: {message}")


def label(algorithm: Algorithm) -> str:
    """`Sequential(MLDG)`"""
    inner = [label(v) for f in fields(algorithm) if isinstance(v := getattr(algorithm, f.name), Algorithm)]
    return type(algorithm).__name__ + (f"({', '.join(inner)})" if inner else "")
