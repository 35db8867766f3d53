"""Draw what a backbone, averaged weights and the sequential path each give on PACS, from the published records.

python scripts/make_shares.py                   (writes docs/pictures/shares.svg)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from statistics import fmean

from seqdg.report import Figure, Style, draw_rows, make_row, write_figures
from seqdg.results import PairKey, SetDifference, average_set, open_run, select_outcomes

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs/results/study"
PICTURES = ROOT / "docs/pictures"
OLD, NEW = "pacs-features/momentum", "pacs-dinov2/momentum"
STEPS = {  # what is added: the two sides of its difference, each a part and an algorithm
    "backbone": ((NEW, "agg"), (OLD, "agg")),
    "averaging": ((NEW, "agg+ema"), (NEW, "agg")),
    "path": ((NEW, "fo-s-mldg+ema"), (NEW, "agg+ema")),
}
DOMAIN, MEAN = "a held-out domain", "mean, 95 % interval over domains and seeds"
LOOKS = {DOMAIN: Style("c6"), MEAN: Style("c1", "diamond")}

Accuracies = Mapping[PairKey, float]


def read_accuracies(part: str) -> dict[str, dict[PairKey, float]]:
    """Return the accuracy of every trial in percent, at the step that source validation chooses."""
    accuracies: dict[str, dict[PairKey, float]] = {}
    with closing(open_run(RECORDS / part)) as run:
        for outcome in select_outcomes(list(run.records("accuracy")), "source-val", "accuracy"):
            if outcome.value is not None:
                pair = outcome.held_out, outcome.seed
                accuracies.setdefault(outcome.algorithm, {})[pair] = 100 * outcome.value
    return accuracies


def measure_shares() -> dict[str, tuple[SetDifference, dict[str, float]]]:
    """Return the difference that each step makes, over all pairs and by held-out domain."""
    known = {part: read_accuracies(part) for part in (OLD, NEW)}
    shares = {}
    for name, ((part, better), (other, worse)) in STEPS.items():
        before = known[other][worse]
        pairs = {pair: value - before[pair] for pair, value in known[part][better].items() if pair in before}
        domains = sorted({domain for domain, _ in pairs})
        whole = average_set(name, pairs)
        assert whole is not None
        shares[name] = whole, {d: fmean(v for (domain, _), v in pairs.items() if domain == d) for d in domains}
    return shares


def make_figure() -> Figure:
    rows = []
    for name, (whole, by_domain) in measure_shares().items():
        rows += [make_row(name, value, look=DOMAIN) for value in by_domain.values()]
        rows.append(make_row(name, whole.mean, *whole.find_interval(), look=MEAN))
    panel = draw_rows(rows, "difference in accuracy (points)", LOOKS, zero=True)
    return Figure("shares", "What each part gives on PACS", [panel], looks=LOOKS, has_legend=True)


if __name__ == "__main__":
    for name, (whole, by_domain) in measure_shares().items():
        low, high = whole.find_interval()
        each = ", ".join(f"{domain} {value:+.1f}" for domain, value in by_domain.items())
        print(f"{name}: {whole.mean:+.2f} ({low:+.2f} to {high:+.2f}); {each}")
    write_figures([make_figure()], PICTURES, ["svg"])
