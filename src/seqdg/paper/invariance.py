"""How well can the source domain be told from what the net learned? (Section 5.4 of the paper, domain loss.)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.functional import cross_entropy, linear

from seqdg.base.episode import Episode, Params
from seqdg.base.errors import UsageError
from seqdg.core import Algorithm
from seqdg.nets.net import Net
from seqdg.paper.study import (
    Diverged,
    Numbers,
    Refused,
    Study,
    deployed,
    embed,
    is_one_net,
    mean_and_spread,
    need,
    of_each,
    walk,
)
from seqdg.training.sampler import stream, torch_generator
from seqdg.training.stack import Stack

WEIGHT, BIAS = "domain.weight", "domain.bias"
MOST = 400  # rows of a source that a curve is taken on
FOLDS = 5
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
Features = NDArray[np.float64]


@dataclass(frozen=True)
class DomainClassifier(Algorithm):
    """The first phase: a linear classifier of the domain on the penultimate layer, trained with all layers below it.

        L(w, V) = 1/N * sum over i of l(i, V f(x_i; w)),   V = 0 at the start, where the loss is ln N

    The head for the classes is left as it is.
    """

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        width = params[net.head_names[0]].shape[1]
        start = params[net.head_names[0]]
        return {**params, WEIGHT: start.new_zeros(sources, width), BIAS: start.new_zeros(sources)}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        return domain_losses(net, params, params, episode.x, episode.domain).mean()

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        direction, value = grad_and_value(lambda weights: self.loss(net, weights, episode))(params)
        return {name: d for name, d in direction.items() if name not in net.head_names}, value


def domain_losses(net: Net, params: Params, classifier: Params, x: Tensor, domain: Tensor) -> Tensor:
    """(domain,) the mean loss of telling each domain's inputs (domain, row, *input) from the features."""

    def of(inputs: Tensor, truth: Tensor) -> Tensor:
        logits = linear(net.features(params, inputs), classifier[WEIGHT], classifier[BIAS])
        return cross_entropy(logits, truth.expand(len(inputs)))

    return vmap(of)(x, domain)


def invariance(study: Study) -> Numbers:
    """Domain loss on the sources' training rows over both phases, for each algorithm.

    In the second phase the classifier stays as it was, as in the paper. As features that merely move also confuse a
    classifier that stays, and rows can be learned by heart, the numbers also have the loss of a fresh classifier of the
    features at the end, fitted to and judged on validation rows, which the net never saw.
    """
    first = study.stack(study.names[0])
    need(first.net.has_features, "This net has no layer below its head, so there is no invariance to look at.")
    try:
        at, before, taught = _first_phase(study, first)
    except Diverged as reason:
        raise UsageError(
            f"{reason} Lower the benchmark's learning rate, by which the first phase is trained."
        ) from None
    found, refused = of_each(study, lambda name, stack: _second_phase(study, name, stack, taught))
    return {
        "chance": math.log(len(study.sources)),
        "first": {"at": at, "mean": before[0], "spread": before[1]},
        "second": {name: curve for name, (curve, _) in found.items()},
        "probe": {name: fresh for name, (_, fresh) in found.items()},
        "refused": refused,
    }


def _first_phase(study: Study, stack: Stack) -> tuple[list[int], tuple[list[float], list[float] | None], Params]:
    """Steps, domain losses, and the weights (trial, ...) at its end; trained by what the benchmark says of all."""
    learner, sources = DomainClassifier(), len(study.sources)
    protocol = replace(study.context.benchmark.protocol, steps=stack.protocol.steps)
    jobs = []
    for job in stack.jobs:
        weights = {name: job.params[name] for name in stack.net.names} if _plain(stack) else stack.net.params()
        generator = torch_generator(job.seed, "domain classifier")
        params = learner.init(stack.net, weights, sources, generator)
        jobs.append(replace(job, algorithm=learner, protocol=protocol, params=params))
    trained = Stack(stack.net, stack.inputs, jobs)
    steps, losses, taught = [], [], {}
    for state in walk(trained, "The domain classifier", study.points, study.tick):
        taught = state.params
        steps.append(state.step)
        losses.append(_on_training_rows(trained, deployed(trained, state), taught))
    return steps, mean_and_spread(torch.stack(losses, 1)), taught


def _plain(stack: Stack) -> bool:
    return all(name in stack.jobs[0].params for name in stack.net.names)


def _second_phase(study: Study, name: str, stack: Stack, taught: Params) -> tuple[Numbers, Numbers]:
    if not is_one_net(stack, stack.deploy(stack.start())):
        raise Refused(f"{name} deploys several nets, so it has no one penultimate layer to look at.")
    sources, jobs = len(study.sources), []
    for i, job in enumerate(stack.jobs):
        weights = {w: taught[w][i].cpu() for w in stack.net.names}
        params = job.algorithm.init(stack.net, weights, sources, torch_generator(job.seed, "extra"))
        jobs.append(replace(job, params=params))
    trained = Stack(stack.net, stack.inputs, jobs)
    steps, losses, weights = [], [], {}
    for state in walk(trained, name, study.points, study.tick):
        weights = deployed(trained, state)
        steps.append(state.step)
        losses.append(_on_training_rows(trained, weights, taught))
    mean, spread = mean_and_spread(torch.stack(losses, 1))
    fresh, error = mean_and_spread(torch.tensor(_probed(trained, weights))[:, None])
    return {"at": steps, "mean": mean, "spread": spread}, {"mean": fresh[0], "spread": error[0] if error else None}


def _on_training_rows(stack: Stack, weights: Params, classifier: Params) -> Tensor:
    """(trial,) mean over the sources of the domain loss."""
    total = []
    for k in range(len(stack.jobs[0].split.train)):
        rows = torch.stack([job.split.train[k][:MOST] for job in stack.jobs])
        z = embed(stack, weights, rows)

        def one(features: Tensor, own: Params, truth: int = k) -> Tensor:
            labels = torch.full((len(features),), truth, device=features.device)
            return cross_entropy(linear(features, own[WEIGHT], own[BIAS]), labels)

        total.append(stack.over_trials(one)(z, {name: classifier[name] for name in (WEIGHT, BIAS)}))
    return torch.stack(total).mean(0)


def _probed(stack: Stack, weights: Params) -> list[float]:
    """By trial, on validation rows."""
    splits = [job.split.validation for job in stack.jobs]
    each = [torch.stack([s[k] for s in splits]) for k in range(len(splits[0]))]
    features = [embed(stack, weights, rows).cpu().double().numpy() for rows in each]
    return [probe([z[i] for z in features]) for i in range(len(stack.jobs))]


def probe(features: Sequence[Features]) -> float:
    """Loss of a linear classifier of the domain on rows that it was not fitted to, each domain weighing the same: ln N
    where nothing tells the domains apart, 0 where everything does. It is held back as much as serves it best.

    features: (row, feature) of each domain.
    """
    return min(_left_out_loss(features, strength) for strength in STRENGTHS)


def _left_out_loss(features: Sequence[Features], strength: float) -> float:
    """Five times, another fifth of every domain is left out of the fit and judged."""
    places = [stream(0, "fold", k).permutation(len(z)) % FOLDS for k, z in enumerate(features)]
    losses = []
    for fold in range(FOLDS):
        train = [z[place != fold] for z, place in zip(features, places, strict=True)]
        test = [z[place == fold] for z, place in zip(features, places, strict=True)]
        losses.append(_fitted_loss(train, test, strength))
    return float(np.mean(losses))


def _fitted_loss(train: Sequence[Features], test: Sequence[Features], strength: float) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x, y = np.concatenate(train), np.repeat(range(len(train)), [len(z) for z in train])
    scale = StandardScaler().fit(x)
    model = LogisticRegression(C=strength, class_weight="balanced", max_iter=2000).fit(scale.transform(x), y)
    losses = [-model.predict_log_proba(scale.transform(z))[:, k].mean() for k, z in enumerate(test) if len(z)]
    return float(np.mean(losses))
