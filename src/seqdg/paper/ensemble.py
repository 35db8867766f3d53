"""Is it only the averaging of nets? (S-)Undo-Bias against the naive ensemble. (The validation figure of appendix B.)"""

from __future__ import annotations

from seqdg.base.errors import UsageError
from seqdg.bench.benchmark import Choice
from seqdg.bench.plan import make_plan
from seqdg.paper.study import Numbers, Study
from seqdg.results.record import FAILED
from seqdg.results.select import select_outcomes
from seqdg.results.summary import summarize


def ensemble(study: Study) -> Numbers:
    """Accuracy on each held-out domain, selected by source validation, of every algorithm."""
    chosen = study.dataset.domains if study.everywhere else [study.held_out]
    choice = Choice(study.algorithms, chosen, study.trials, study.steps, study.seed, study.settings)
    records, asked = [], make_plan(study.context, choice)
    for group, found in study.executor(asked.groups, study.context, lambda group, step: None):
        study.tick(group.work)
        records += found
    for record in records:
        if record.status == FAILED:
            raise UsageError(f"A trial of {record.algorithm} failed: {record.error.strip().splitlines()[-1]}")
    place = {trial.key: i for i, trial in enumerate(asked.trials)}  # not the order in which they were done
    cells = summarize(select_outcomes(sorted(records, key=lambda record: place[record.key])))
    return {
        "cells": [
            {
                "algorithm": c.algorithm,
                "held_out": c.held_out,
                "mean": c.mean,
                "stderr": c.stderr,
                "trials": c.trials,
                "diverged": c.diverged,
            }
            for c in cells
        ],
        "refused": {},
    }
