"""How well can the source domain be told from what the net learned? (Section 5.4 of the paper, domain loss.)"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.functional import cross_entropy, linear

from seqdg import report
from seqdg.base import Episode, Params, UsageError, join_names
from seqdg.core import Algorithm
from seqdg.nets import Net
from seqdg.paper.study import (
    Diverged,
    Numbers,
    Refused,
    Study,
    analyze_each,
    embed,
    is_one_net,
    make_curve,
    mean_and_spread,
    require,
    trace,
)
from seqdg.training import Job, Stack, make_generator, make_stream

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
        z = net.domain_features(params, episode)
        return vmap(lambda rows, truth: _tell_domain(rows, params, truth))(z, episode.domain).mean()

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        direction, value = grad_and_value(lambda weights: self.loss(net, weights, episode))(params)
        return {name: d for name, d in direction.items() if name not in net.head_names}, value


def _tell_domain(z: Tensor, classifier: Params, truth: Tensor) -> Tensor:
    return cross_entropy(linear(z, classifier[WEIGHT], classifier[BIAS]), truth.expand(len(z)))


def compute(study: Study) -> Numbers:
    """Compute the domain loss on the sources' training rows over both phases, for each algorithm.

    In the second phase the classifier stays as it was, as in the paper, and features are normalized as in training. As
    features that merely move also confuse a
    classifier that stays, and rows can be learned by heart, the numbers also have the loss of a fresh classifier of the
    features at the end, fitted to and judged on validation rows, which the net never saw.
    """
    first = study.build_stack(study.names[0])
    require(first.net.has_features, "This net has no layer below its head, so there is no invariance to look at.")
    try:
        before, taught = _train_first_phase(study, first)
    except Diverged as reason:
        raise UsageError(
            f"{reason} Lower the benchmark's learning rate, by which the first phase is trained."
        ) from None
    results, refused = analyze_each(study, lambda name, stack: _train_second_phase(study, name, stack, taught))
    return {
        "chance": math.log(len(study.sources)),
        "first": before,
        "second": {name: curve for name, (curve, _) in results.items()},
        "probe": {name: fresh for name, (_, fresh) in results.items()},
        "refused": refused,
    }


def _train_first_phase(study: Study, stack: Stack) -> tuple[Numbers, Params]:
    """Train by the benchmark's protocol; return the curve of the domain losses and the last weights (trial, ...)."""
    learner, sources = DomainClassifier(), len(study.sources)
    protocol = replace(study.benchmark.protocol, steps=study.first_steps or stack.protocol.steps)
    jobs = []
    for job in stack.jobs:
        plain = all(name in job.params for name in stack.net.names)
        weights = {name: job.params[name] for name in stack.net.names} if plain else stack.net.params()
        generator = make_generator(job.seed, "domain classifier")
        params = learner.init(stack.net, weights, sources, generator)
        jobs.append(replace(job, algorithm=learner, protocol=protocol, params=params))
    trained = Stack(stack.net, stack.inputs, jobs)
    steps, losses, last = trace(
        study, "The domain classifier", trained, lambda s: _measure_on_training_rows(trained, s.params, s.params)
    )
    return make_curve(steps, losses), last.params


def _train_second_phase(study: Study, name: str, stack: Stack, taught: Params) -> tuple[Numbers, Numbers]:
    if not is_one_net(stack, stack.deploy(stack.start())):
        raise Refused(f"{name} deploys several networks, so it has no one penultimate layer to look at.")
    sources, jobs = len(study.sources), []
    for i, job in enumerate(stack.jobs):
        weights = {w: taught[w][i].cpu() for w in stack.net.names}
        params = job.algorithm.init(stack.net, weights, sources, make_generator(job.seed, "extra"))
        jobs.append(replace(job, params=params))
    trained = Stack(stack.net, stack.inputs, jobs)
    steps, losses, last = trace(
        study, name, trained, lambda state: _measure_on_training_rows(trained, trained.deploy(state), taught)
    )
    fresh, error = mean_and_spread(torch.tensor(_probe_trials(trained, trained.deploy(last)))[:, None])
    return make_curve(steps, losses), {"mean": fresh[0], "spread": error[0] if error else None}


def _measure_on_training_rows(stack: Stack, weights: Params, classifier: Params) -> Tensor:
    """Return (trial,) the mean over the sources of the domain loss, on rows drawn from all training rows.

    Where minibatches are normalized by their own statistics, so are the rows here, as many at a time as in training:
    the classifier has learned from such features. By the deployed statistics, those of all sources together, the
    same rows have other features.
    """
    weights = {name: weights[name] for name in stack.net.names}
    batch = stack.protocol.batch
    losses = []
    for k in range(len(stack.jobs[0].split.train)):
        rows = torch.stack([_draw_rows(job, k, batch if stack.net.on_batch else 1) for job in stack.jobs])
        z = embed(stack, weights, rows, batch if stack.net.on_batch else None)
        tell = partial(_tell_domain, truth=torch.tensor(k, device=z.device))
        losses.append(stack.map_over_trials(tell)(z, {name: classifier[name] for name in (WEIGHT, BIAS)}))
    return torch.stack(losses).mean(0)


def _draw_rows(job: Job, source: int, batch: int) -> Tensor:
    """Draw at most MOST training rows of a source, in whole minibatches where there are as many."""
    rows = job.split.train[source]
    count = min(MOST, len(rows))
    drawn = make_stream(job.seed, "judged", source).permutation(len(rows))[
        : max(count - count % batch, min(count, batch))
    ]
    return rows[torch.from_numpy(drawn)]


def _probe_trials(stack: Stack, weights: Params) -> list[float]:
    """Return the loss of a fresh classifier on validation rows, by trial."""
    splits = [job.split.validation for job in stack.jobs]
    each = [torch.stack([s[k] for s in splits]) for k in range(len(splits[0]))]
    features = [embed(stack, weights, rows).cpu().double().numpy() for rows in each]
    return [probe([z[i] for z in features]) for i in range(len(stack.jobs))]


def probe(features: Sequence[Features]) -> float:
    """Return the loss of a linear classifier of the domain on rows that it was not fitted to, each domain weighing the
    same: ln N where nothing tells the domains apart, 0 where everything does. It is regularized as
    much as serves it best.

    features: (row, feature) of each domain.
    """
    return min(_cross_validate(features, strength) for strength in STRENGTHS)


def _cross_validate(features: Sequence[Features], strength: float) -> float:
    """Return the mean loss over five fits, each judged on another fifth of every domain that it leaves out."""
    folds = [make_stream(0, "fold", k).permutation(len(z)) % FOLDS for k, z in enumerate(features)]
    losses = []
    for fold in range(FOLDS):
        train = [z[folds_of_rows != fold] for z, folds_of_rows in zip(features, folds, strict=True)]
        test = [z[folds_of_rows == fold] for z, folds_of_rows in zip(features, folds, strict=True)]
        losses.append(_fit_and_judge(train, test, strength))
    return float(np.mean(losses))


def _fit_and_judge(train: Sequence[Features], test: Sequence[Features], strength: float) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x, y = np.concatenate(train), np.repeat(range(len(train)), [len(z) for z in train])
    scale = StandardScaler().fit(x)
    model = LogisticRegression(C=strength, class_weight="balanced", max_iter=2000).fit(scale.transform(x), y)
    losses = [-model.predict_log_proba(scale.transform(z))[:, k].mean() for k, z in enumerate(test) if len(z)]
    return float(np.mean(losses))


ALONE = "domain classifier alone"


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show the domain loss over both phases."""
    numbers = payload["numbers"]
    second, probe, chance = numbers["second"], numbers["probe"], numbers["chance"]
    first, turn = numbers["first"], numbers["first"]["at"][-1]
    curves = {ALONE: (first["at"], first["mean"])}
    curves |= {name: ([turn + s for s in curve["at"]], curve["mean"]) for name, curve in second.items()}
    looks = {ALONE: report.Style("muted"), **report.pick_styles(looks, second)}
    marked = (turn, "class training"), (chance, "chance, ln N")
    panels = [report.draw_lines(curves, "step", "domain loss", looks, "Classifier of the first phase", *marked)]
    if probe:
        rows = [report.make_row(name, p["mean"], *_compute_ends(p)) for name, p in probe.items()]
        panels.append(report.draw_rows(rows, "domain loss", looks, "Classifier fitted anew at the end"))
    table = report.Table(
        "Domain loss at the end; higher is more invariant",
        ["algorithm", "classifier kept", "classifier fitted anew"],
        [(name, [f"{second[name]['mean'][-1]:.3f}", report.format_mean(probe[name]["mean"], probe[name]["spread"], 3)])
         for name in second],
    )  # fmt: skip
    caption = (
        "First a domain classifier on the penultimate layer is trained, then the classes with each algorithm. The "
        "first panel has that classifier, kept, on training rows. Features that move also confuse a classifier that "
        "stays, so the second has one fitted anew to features of the deployed net, and judged on rows that neither it "
        "nor the net has seen. "
        f"{_describe_bars(probe)}"
    )
    title, about = "Domain invariance", f"Before, {turn} of the domain classifier."
    if not second:
        return report.make_section(payload, "invariance", title, [], [], about=about)
    figure = report.Figure("invariance", title, panels, caption, looks, has_legend=True)
    return report.make_section(payload, "invariance", title, [figure], [table], _state_findings(numbers), about)


def _describe_bars(probe: Mapping[str, Any]) -> str:
    several = any(value["spread"] is not None for value in probe.values())
    return "Bars are one standard error over seeds." if several else "One seed, so there are no error bars."


def _compute_ends(value: Mapping[str, Any]) -> tuple[float | None, float | None]:
    spread = value["spread"]
    return (None, None) if spread is None else (value["mean"] - spread, value["mean"] + spread)


def _state_findings(numbers: Mapping[str, Any]) -> list[str]:
    kept = {name: curve["mean"][-1] for name, curve in numbers["second"].items()}
    anew = {name: value["mean"] for name, value in numbers["probe"].items()}
    if len(kept) < 2:
        return []
    most, least = max(kept, key=lambda n: kept[n]), min(kept, key=lambda n: kept[n])
    order = sorted(anew, key=lambda n: -anew[n])
    return [
        f"By the classifier of the first phase, the domain is hardest to tell from the features of {most} (loss "
        f"{kept[most]:.2f}) and easiest from those of {least} ({kept[least]:.2f}); guessing costs "
        f"{numbers['chance']:.2f}.",
        f"By a classifier fitted anew, from hardest to easiest: {join_names(order)} (loss {anew[order[0]]:.2f} to "
        f"{anew[order[-1]]:.2f}).",
    ]


report.register_analysis(report.AnalysisKind(
    "invariance", compute, show, ("agg", "fo-mldg", "fo-s-mldg"), trials=2, order=10, headline=(2, -1),
    has_first_phase=True,
))  # fmt: skip
