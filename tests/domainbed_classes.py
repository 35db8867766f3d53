"""DomainBed's own classes, where `$SEQDG_DOMAINBED` names a checkout of it: their gradients, to compare ours with.

    theirs = build_theirs("CORAL", domains=3, mmd_gamma=1.0)     one of its algorithms, on a small MLP
    assert_same_gradient(build("coral", gamma=1.0), theirs, draw_episode(3))

Its networks import torchvision and timm, of which an MLP needs nothing: where they are missing, empty modules stand in.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from seqdg import Algorithm, Episode, Net
from seqdg.base import tree

INPUTS, CLASSES, BATCH = 6, 4, 32
SHAPE = {
    "mlp_width": 8,
    "mlp_depth": 3,
    "mlp_dropout": 0.0,
    "nonlinear_classifier": False,
    "lr": 0.01,
    "weight_decay": 0.0,
}


def import_domainbed() -> ModuleType:
    """Return its module of algorithms, or skip the test."""
    folder = os.environ.get("SEQDG_DOMAINBED", "")
    if not folder:
        pytest.skip("Set SEQDG_DOMAINBED to a checkout of DomainBed to compare with its gradients.")
    if not (Path(folder) / "domainbed" / "algorithms.py").is_file():
        pytest.fail(f"SEQDG_DOMAINBED is '{folder}', but there is no domainbed/algorithms.py in it.")
    _stand_in("torchvision", "torchvision.models")
    _stand_in("timm")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("domainbed.algorithms")


def _stand_in(*names: str) -> None:
    """Put empty modules where the first of them cannot be imported."""
    try:
        for name in names:
            importlib.import_module(name)
    except (ImportError, RuntimeError):  # a torchvision of another torch raises a RuntimeError
        for name in names:
            module = ModuleType(name)
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


def build_theirs(name: str, domains: int = 3, **hparams: Any) -> Any:
    """Return one of its algorithms, on a small MLP with weights away from the start."""
    module = import_domainbed()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = module.get_algorithm_class(name)((INPUTS,), CLASSES, domains, {**SHAPE, **hparams})
        with torch.no_grad():
            for p in theirs.parameters():
                p.add_(0.3 * torch.randn(p.shape))
    return theirs


def draw_episode(domains: int = 3, batch: int = BATCH, seed: int = 0) -> Episode:
    """Draw a float32 episode whose domains differ, in the order of the sources."""
    g = torch.Generator().manual_seed(seed)
    shift = torch.arange(domains).reshape(-1, 1, 1)
    return Episode(
        x=torch.randn((domains, batch, INPUTS), generator=g) * (1 + 0.2 * shift) + 0.3 * shift,
        y=torch.randint(CLASSES, (domains, batch), generator=g),
        domain=torch.arange(domains),
        progress=torch.tensor(0.5),
        key=torch.randint(2**62, (), generator=g),
    )


def find_network(theirs: Any) -> torch.nn.Module:
    """Return its net, features and head in a row."""
    if hasattr(theirs, "network"):
        network: torch.nn.Module = theirs.network
        return network
    return torch.nn.Sequential(theirs.featurizer, theirs.classifier)


def gradient_by_name(theirs: Any, episode: Episode) -> dict[str, Tensor]:
    """Return the gradient that one call of `update` leaves in the weights, of which a copy takes the step."""
    stepped = copy.deepcopy(theirs)  # with its optimizer, which holds the copied weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stepped.update([(x, y) for x, y in zip(episode.x, episode.y, strict=True)])
    gradients = {name: p.grad for name, p in find_network(stepped).named_parameters()}
    assert all(g is not None for g in gradients.values())
    return {name: g for name, g in gradients.items() if g is not None}


def assert_same_gradient(ours: Algorithm, theirs: Any, episode: Episode, tolerance: float = 1e-4) -> None:
    """Assert that both give the same direction, to a share of its length: in float32, same net, same minibatches."""
    net = Net(copy.deepcopy(find_network(theirs)), "none")
    want = gradient_by_name(theirs, episode)
    got, _ = ours.gradient(net, net.params(), episode)
    assert got.keys() == want.keys()
    apart = float(tree.squared_norm(tree.add(got, want, -1.0)).sqrt() / tree.squared_norm(want).sqrt())
    assert apart < tolerance, f"{type(ours).__name__} is {apart:.1e} away from DomainBed's {type(theirs).__name__}."
