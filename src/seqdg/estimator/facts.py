"""What is told of a model's making, in plain values: on what data, how, by which versions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from seqdg.core.settings import flatten_settings
from seqdg.estimator.material import Material
from seqdg.estimator.recipe import TRAINING, Recipe, plain
from seqdg.estimator.train import Fit
from seqdg.training.provenance import list_versions


def facts_of(material: Material, recipe: Recipe, fit: Fit) -> dict[str, Any]:
    dataset = material.dataset
    domains = {}
    for domain in dataset.domains:
        labels = dataset.y[dataset.rows(domain)]
        counts = torch.bincount(labels, minlength=len(dataset.classes)).tolist()
        domains[domain] = {"rows": len(labels), "classes": dict(zip(dataset.classes, counts, strict=True))}
    return {
        "domains": domains,
        "step": fit.step,
        "validation": {
            d: {c: v if math.isfinite(v) else None for c, v in m.items()} for d, m in fit.validation.items()
        },
        "parameters": parameters_of(recipe),
        "versions": list_versions(),
        "notes": list(dataset.notes),
    }


def parameters_of(recipe: Recipe) -> dict[str, Any]:
    """The estimator's parameters as JSON has them, but for the net."""
    weight = recipe.class_weight
    pairs = [[plain(k), plain(v)] for k, v in weight.items()] if isinstance(weight, Mapping) else weight
    return {
        "algorithm": recipe.name,
        "settings": {name: _listed(value) for name, value in flatten_settings(recipe.algorithm).items()},
        "hidden": list(recipe.hidden),
        "batchnorm": recipe.batchnorm,
        **{name: plain(getattr(recipe.protocol, name)) for name in TRAINING},
        "validation": plain(recipe.validation),
        "criterion": recipe.criterion,
        "stop": recipe.stop,
        "class_weight": pairs,
        "image_size": recipe.image_size,
        "augment": recipe.augment,
        "random_state": recipe.seed,
    }


def read_parameters(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `parameters_of`: what the estimator is constructed with."""
    found = dict(facts["parameters"])
    found["settings"] = {k: tuple(v) if isinstance(v, list) else v for k, v in found["settings"].items()}
    found["hidden"] = tuple(found["hidden"])
    if isinstance(found["class_weight"], list):
        found["class_weight"] = dict(found["class_weight"])
    return found


def _listed(value: Any) -> Any:
    return [plain(v) for v in value] if isinstance(value, tuple) else plain(value)
