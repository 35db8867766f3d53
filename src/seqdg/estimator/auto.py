"""Parameters that are left to the data: `hidden="auto"`, `steps="auto"`, `domains_per_step="auto"`.

They become numbers once the rows are known, and a model's card has the numbers. `benchmarks/accuracy/defaults.py`
measures what they rest on, and docs/tabular.md has its table.
"""

from __future__ import annotations

from dataclasses import replace

from seqdg.core.algorithm import Algorithm, Settings
from seqdg.data import Dataset
from seqdg.estimator.recipe import DOMAINS_PER_STEP, HIDDEN, STEPS, Recipe
from seqdg.nets import NetSpec
from seqdg.training.protocol import Protocol

WIDTHS = ((0, (64, 32)), (10_000, (128, 64)), (100_000, (256, 128)))  # from so many rows on
FEWEST, MOST = 500, 3000  # steps
SOME = 8  # domains that a step meets, of more


def adapt_recipe(recipe: Recipe, dataset: Dataset) -> Recipe:
    """Return the recipe with numbers in place of what is left to the data."""
    if not recipe.auto:
        return recipe
    rows, domains = len(dataset.y), len(dataset.domains)
    hidden, net, protocol = recipe.hidden, recipe.net, recipe.protocol
    if HIDDEN in recipe.auto:
        hidden = choose_widths(rows)
        net = replace(net, hidden=hidden) if isinstance(net, NetSpec) and net.name == "mlp" else net
    if DOMAINS_PER_STEP in recipe.auto:
        protocol = meet_all_where_needed(replace(protocol, domains_per_step=choose_domains(domains)), recipe.algorithm)
    if STEPS in recipe.auto:
        protocol = replace(protocol, steps=choose_steps(rows, domains, protocol, dataset.is_image))
    return replace(recipe, hidden=hidden, net=net, protocol=protocol, auto=recipe.auto - {HIDDEN, STEPS})


def meet_all_where_needed(protocol: Protocol, algorithm: Settings) -> Protocol:
    """Let every step meet all domains where the algorithm cannot do with some."""
    if isinstance(algorithm, Algorithm) and algorithm.needs_all:
        return replace(protocol, domains_per_step=0)
    return protocol


def choose_widths(rows: int) -> tuple[int, ...]:
    """Choose the widths of the hidden layers: more rows can fit more weights."""
    return next(widths for least, widths in reversed(WIDTHS) if rows >= least)


def choose_domains(domains: int) -> int:
    """Choose how many domains a step meets: all (0), or some of many."""
    return SOME if domains > SOME else 0


def choose_steps(rows: int, domains: int, protocol: Protocol, is_image: bool = False) -> int:
    """Choose the number of steps: those that meet as many rows as there are, in hundreds, from FEWEST to MOST."""
    if is_image:
        return FEWEST
    met = protocol.batch * protocol.count_domains(domains)
    return min(MOST, max(FEWEST, round(rows / met / 100) * 100))
