"""Selection: which evaluation of which candidate counts. No rule but the two oracles looks at the held-out domain."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seqdg.base import UsageError, list_some, unknown
from seqdg.results.criteria import CRITERIA, score
from seqdg.results.record import DIVERGED, DONE, IMPORTED, Evaluation, Outcome, Record, find_usual_criterion_in

RULES = ("source-val", "last", "leave-one-out", "domain-val", "oracle", "oracle-split")
UNPAIRED = ("ColoredMNIST", "RotatedMNIST")  # of DomainBed, whose rows differ from algorithm to algorithm


def select_outcomes(records: Sequence[Record], rule: str = "source-val", criterion: str | None = None) -> list[Outcome]:
    """Select one evaluation for each algorithm, held-out domain and seed, among all settings and steps tried. A fixed
    split has one for all its held-out domains. criterion: None means accuracy, or the RMSE of numbers."""
    criterion = criterion or find_usual_criterion_in(records)
    if rule not in RULES:
        raise unknown("selection rule", rule, RULES)
    if criterion not in CRITERIA:
        raise unknown("criterion", criterion, CRITERIA)
    candidates: dict[tuple[str, tuple[str, ...], int], list[Record]] = {}
    for record in _keep_tabled(records):
        candidates.setdefault((record.algorithm, record.held_out, record.seed), []).append(record)
    tabled = [r for tried in candidates.values() for r in tried]
    _check_criterion(tabled, criterion)
    _check_rule(tabled, rule)
    inner, names = InnerTrials(records if rule == "leave-one-out" else ()), name_choices(tabled)
    selected = (_select_outcomes(tried, rule, criterion, inner) for tried in candidates.values())
    return [o for outcomes in selected for o in _join_domains(outcomes, names)]


def name_choices(records: Sequence[Record]) -> dict[tuple[str, ...], str]:
    """Name every choice of domains that are held out at once: by all of them, or by the only source."""
    joint = [r for r in records if r.is_joint and not r.is_fixed]
    choices = dict.fromkeys(r.held_out for r in joint)
    every = dict.fromkeys(domain for choice in choices for domain in choice)
    sources = {len(values) for r in joint for e in r.history[-1:] for values in e.source.values()}
    left = {choice: [domain for domain in every if domain not in choice] for choice in choices}
    return {
        choice: f"from {rest[0]}" if sources == {1} and len(rest) == 1 else " + ".join(choice)
        for choice, rest in left.items()
    }


def _join_domains(outcomes: list[Outcome], names: Mapping[tuple[str, ...], str]) -> list[Outcome]:
    """Return one outcome of domains that a protocol holds out at once, with their mean; others as they are."""
    first = outcomes[0]
    if first.record.held_out not in names or not first.record.is_joint:
        return outcomes
    values = [o.value for o in outcomes if o.value is not None]
    return [replace(first, held_out=names[first.record.held_out], value=average_finite(values) if values else None)]


def count_candidates(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """Return by algorithm the least and the most settings and rates tried for a held-out domain and seed."""
    counts: dict[str, list[int]] = {}
    for (name, _), by_seed in _count_tried(records).items():
        counts.setdefault(name, []).extend(by_seed.values())
    return {name: (min(some), max(some)) for name, some in counts.items()}


def _count_tried(records: Sequence[Record]) -> dict[tuple[str, str], Counter[int]]:
    """Count the trials of every seed by algorithm and held-out domain; a soup has no settings."""
    counts: dict[tuple[str, str], Counter[int]] = {}
    for r in _keep_tabled(records):
        if not r.members:
            held_out = " + ".join(r.held_out) if r.is_joint else r.held_out[0]
            counts.setdefault((r.algorithm, held_out), Counter())[r.seed] += 1
    return counts


def find_mixtures(records: Sequence[Record], draws_training: bool = False) -> dict[str, list[str]]:
    """Return the fields of the protocol other than the rate in which the candidates of an algorithm differ, and their
    values: the steps, for example, where two commands filled one run. A field that was added later may be absent.

    draws_training: whether a search drew more of the training than the rate, as DomainBed's do.
    """
    mixtures: dict[str, dict[str, None]] = {}
    protocols: dict[str, dict[str, Any]] = {}
    for r in _keep_tabled(records):
        protocol = r.description["protocol"]
        first = protocols.setdefault(r.algorithm, protocol)
        searched = ("lr", "batch", "weight_decay") if r.is_imported or draws_training else ("lr",)
        for name in dict.fromkeys((*first, *protocol)):
            values = [str(p.get(name, "as before")) for p in (first, protocol)]
            if name not in searched and values[0] != values[1]:
                mixtures.setdefault(name, {}).update(dict.fromkeys(values))
    return {name: list(values) for name, values in mixtures.items()}


def _keep_tabled(records: Sequence[Record]) -> list[Record]:
    """Return the finished trials with as many domains held out as their protocol says, or those of a fixed split."""
    return [r for r in records if r.is_tabled and r.status in (DONE, DIVERGED)]


def _check_criterion(records: Sequence[Record], criterion: str) -> None:
    lacking = [r for r in records if r.history and criterion not in r.history[-1].held_out]
    if lacking:
        known = [name for name, unit in CRITERIA.items() if name != criterion and not unit.scope]
        others = "accuracy" if lacking[0].is_imported else ", ".join(known)
        scope = CRITERIA[criterion].scope
        why = f"it is recorded for {scope} alone" if scope else "it was made without it"
        numbers = [name for name, unit in CRITERIA.items() if unit.is_of_numbers and name != criterion]
        alone = CRITERIA[criterion].is_of_numbers or lacking[0].is_imported
        instead = "" if alone else f"; for regression, one of: {', '.join(numbers)}"
        raise UsageError(f"This run has no {criterion}: {why}. Choose one of: {others}{instead}.")


def _check_rule(records: Sequence[Record], rule: str) -> None:
    """Refuse records that lack what the rule chooses by."""
    if rule == "oracle-split":
        lacking = [r for r in records if r.status != DIVERGED and not (r.history and r.history[-1].held_out_rest)]
        what = (
            "no two parts of their held-out rows, of which a fifth chooses and the rest is reported: train them again "
            "in another directory, or choose another rule"
        )
    elif rule == "domain-val":
        lacking = [r for r in records if not r.description["protocol"].get("validation_domains")]
        what = (
            "no validation domains, which are neither trained on nor tested: name them in validation_domains of "
            "[protocol] or in a split_column of [data], or choose another rule"
        )
    else:
        by_rows = rule in ("source-val", "last")
        lacking = [r for r in records if by_rows and r.is_fixed and r.status == DONE and not has_validation(r)]
        what = (
            "no validation rows of their sources, as all of these are trained on: choose by the validation domains, "
            "with --select domain-val"
        )
    if lacking:
        raise UsageError(
            f"{len(lacking)} of {len(records)} trials, such as {lacking[0].algorithm} with "
            f"{list_some(lacking[0].held_out)} held out, have {what}."
        )


def has_validation(record: Record) -> bool:
    """Say whether some source of a trial has validation rows."""
    return any(math.isfinite(v) for values in record.history[-1].source.values() for v in values)


def _select_outcomes(tried: list[Record], rule: str, criterion: str, inner: InnerTrials) -> list[Outcome]:
    best: tuple[float, Record, int] | None = None
    for record in tried:
        for value, i in _score_steps(record, rule, criterion, inner) if record.status != DIVERGED else ():
            if best is None or value > best[0]:
                best = (value, record, i)
    if best is None:
        first = tried[0]
        return [Outcome(first.algorithm, d, first.seed, None, 0, first, k) for k, d in enumerate(first.held_out)]
    _, record, i = best
    evaluation = record.history[i]
    reached = (evaluation.held_out_rest if rule == "oracle-split" else evaluation.held_out)[criterion]
    several = record.is_fixed and len(record.held_out) > 1 and rule != "oracle-split"
    together = evaluation.together[criterion][0] if several else None
    return [
        Outcome(record.algorithm, domain, record.seed, reached[k], evaluation.step, record, k, together)
        for k, domain in enumerate(record.held_out)
    ]


def _score_steps(record: Record, rule: str, criterion: str, inner: InnerTrials) -> list[tuple[float, int]]:
    """Return the score of each evaluation that the rule may choose and that has one, and its index."""
    # what is mixed of trials has none with two domains held out
    within = inner.find(record) if rule == "leave-one-out" and not record.members else []
    last = len(record.history) - 1
    steps = [last] if rule in ("last", "oracle-split") else range(last + 1)
    try:
        scores = [(score(_evaluate(record, i, rule, criterion, within), criterion), i) for i in steps]
    except (KeyError, IndexError):
        raise UsageError(f"The record of trial {record.key} lacks {criterion}: use another copy of its run.") from None
    return [(value, i) for value, i in scores if math.isfinite(value)]


def _evaluate(record: Record, i: int, rule: str, criterion: str, within: Sequence[tuple[Record, int]]) -> float:
    """Return the value by which the rule compares evaluations of one algorithm, held-out domain and seed."""
    if rule == "oracle":
        return average_finite(record.history[i].held_out[criterion])
    if rule == "oracle-split":
        return average_finite(record.history[i].held_out_fifth[criterion])
    if rule == "domain-val":
        return record.history[i].together[criterion][1]
    if within:
        if any(pair.status == DIVERGED for pair, _ in within):
            return math.nan
        return average_finite([p.history[min(i, len(p.history) - 1)].held_out[criterion][other] for p, other in within])
    return average_finite(record.history[i].source[criterion])


def name_candidate(record: Record) -> str:
    """Return what identifies a candidate: the algorithm, its settings, its protocol with the learning rate, and what
    dropout drops."""
    about = record.description
    dropout = about["net"].get("dropout", 0.0)
    return json.dumps([about["algorithm"], about["settings"], about["protocol"], dropout], sort_keys=True)


def score_candidate(record: Record, inner: InnerTrials, rule: str, criterion: str) -> float:
    """Return how good a trial is by the rule, at its best step: more is better."""
    return max((value for value, _ in _score_steps(record, rule, criterion, inner)), default=math.nan)


def find_reuse(records: Sequence[Record], outcomes: Sequence[Outcome]) -> str:
    """Say whether only the first seed was searched: "" if not, `same` if the other seeds have the settings that these
    outcomes took on the first, `other` if they have those of another rule."""
    searched = {cell: counts for cell, counts in _count_tried(records).items() if max(counts.values()) > 1}
    if not searched or any(len(c) < 2 or {n for s, n in c.items() if s != min(c)} != {1} for c in searched.values()):
        return ""
    taken: dict[tuple[str, str], set[str]] = {}
    for o in outcomes:
        held_out = " + ".join(o.record.held_out) if o.record.is_joint else o.held_out
        if (o.algorithm, held_out) in searched:
            taken.setdefault((o.algorithm, held_out), set()).add(name_candidate(o.record))
    return "same" if all(len(names) == 1 for names in taken.values()) else "other"


class InnerTrials:
    """Trials with two domains held out. Selection for one of the two looks at the value on the other."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.trials: dict[tuple[str, int, str], list[tuple[Record, int]]] = {}
        self.partners: dict[str, set[str]] = {}
        for r in records:
            if len(r.held_out) == 2 and not r.is_tabled and r.status in (DONE, DIVERGED):
                for i, domain in enumerate(r.held_out):
                    self.trials.setdefault((name_candidate(r), r.seed, domain), []).append((r, 1 - i))
                    self.partners.setdefault(domain, set()).add(r.held_out[1 - i])

    def find(self, record: Record) -> list[tuple[Record, int]]:
        """Return for each source s the trial without s and the held-out domain, and the index of s in it.

        A candidate's score is the mean over s of the value on s. It is not chosen if one of these trials diverged.
        """
        target = record.held_out[0]
        trials = self.trials.get((name_candidate(record), record.seed, target), [])
        sources = self.partners.get(target, ())
        if not trials or len(trials) < len(sources):
            raise UsageError(
                "Selection by leave-one-out needs trials with two domains held out, and this run has "
                f"{f'only {len(trials)} of {len(sources)}' if trials else 'none'} for {record.algorithm} with "
                f"{target} held out. `seqdg bench --select leave-one-out` adds them."
            )
        return trials


def average_finite(values: Sequence[float]) -> float:
    """Return the mean of the finite values. A domain whose rows are all of one class, for example, has no AUROC."""
    total = sum(values)
    if values and math.isfinite(total):
        return total / len(values)
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan


def find_best(values: Sequence[float], criterion: str) -> tuple[float, int] | None:
    """Find the best finite value: its score (more is better) and its index, the first of those alike."""
    known = [(score(v, criterion), -i) for i, v in enumerate(values) if math.isfinite(v)]
    if not known:
        return None
    best, index = max(known)
    return best, -index


def select_step(history: Sequence[Evaluation], criterion: str) -> tuple[float, int] | None:
    """Select the evaluation that is best on source validation: its score and its index."""
    return find_best([average_finite(e.source[criterion]) for e in history], criterion)


def select_evaluation(record: Record, criterion: str, step: int | None = None) -> Evaluation | None:
    """Select the evaluation of a training after these steps, or else the one that is best on source validation; None
    where it diverged."""
    if step is not None:
        return next((e for e in record.history if e.step == step), None) if record.status == DONE else None
    best = select_step(record.history, criterion) if record.status == DONE else None
    return None if best is None else record.history[best[1]]


def describe_imports(records: Sequence[Record]) -> list[str]:
    """Say which algorithms were trained elsewhere, and what that means for their numbers and for pairs."""
    imported = [r for r in records if r.is_imported]
    if not imported:
        return []
    origins = dict.fromkeys(str(r.description[IMPORTED]["from"]) for r in imported)
    shares = sorted({round(100 * r.description[IMPORTED]["share"]) for r in imported})
    names = dict.fromkeys(r.algorithm for r in imported)
    sentences = [
        f"Imported from {' and '.join(origins)}: {list_some(names)}, on {' or '.join(map(str, shares))} % of the "
        "held-out rows."
    ]
    if any(str(r.description["data"]).removeprefix("DomainBed ") in UNPAIRED for r in imported):
        sentences.append("Rows of these data were drawn anew for every algorithm: pairs over seeds are not pairs.")
    elif len(imported) < len(records):
        sentences.append(
            "Imported trials and the others of a seed share neither splits nor minibatches: between them, pairs over "
            "seeds are not pairs."
        )
    return sentences
