"""Parameters that are left to the data: `hidden`, `steps`, `domains_per_step`, `members` = "auto".

They become numbers once the rows are known, and a model's card has the numbers. `benchmarks/accuracy/defaults.py`
measures what they rest on, and docs/choosing.md has its table.
"""

from __future__ import annotations

from dataclasses import replace

from seqdg.core import Algorithm, Settings
from seqdg.data import Dataset
from seqdg.estimator.recipe import DOMAINS_PER_STEP, HIDDEN, MEMBERS, STEPS, Recipe
from seqdg.nets import NetSpec
from seqdg.training import Protocol

CLASSES = ((0, (32,)), (10_000, (128, 64)), (100_000, (256, 128)))  # widths from so many rows on
NUMBERS = ((0, (32,)), (2_000, (64, 32)), *CLASSES[1:])  # likewise, where numbers are predicted
FEWEST, MOST = 500, 5000  # steps
PASSES = 3  # how often the steps meet every row
NETS = 4  # that predict together
SOME = 8  # domains that a step meets, of more


def adapt_recipe(recipe: Recipe, dataset: Dataset) -> Recipe:
    """Return the recipe with numbers in place of what is left to the data."""
    if not recipe.auto:
        return recipe
    rows, domains = len(dataset.y), len(dataset.domains)
    hidden, net, protocol = recipe.hidden, recipe.net, recipe.protocol
    if HIDDEN in recipe.auto:
        hidden = choose_widths(rows, dataset.is_regression)
        net = replace(net, hidden=hidden) if isinstance(net, NetSpec) and net.name == "mlp" else net
    if DOMAINS_PER_STEP in recipe.auto:
        protocol = meet_all_where_needed(replace(protocol, domains_per_step=choose_domains(domains)), recipe.algorithm)
    if MEMBERS in recipe.auto:
        protocol = replace(protocol, members=choose_members(recipe, dataset.is_image))
    if STEPS in recipe.auto:
        protocol = replace(protocol, steps=choose_steps(rows, domains, protocol, dataset.is_image))
    return replace(recipe, hidden=hidden, net=net, protocol=protocol, auto=recipe.auto - {HIDDEN, STEPS, MEMBERS})


def meet_all_where_needed(protocol: Protocol, algorithm: Settings) -> Protocol:
    """Let every step meet all domains where the algorithm cannot do with some."""
    if isinstance(algorithm, Algorithm) and algorithm.needs_all:
        return replace(protocol, domains_per_step=0)
    return protocol


def choose_widths(rows: int, is_regression: bool = False) -> tuple[int, ...]:
    """Choose the widths of the hidden layers: more rows can fit more weights, and numbers need more than classes."""
    known = NUMBERS if is_regression else CLASSES
    return next(widths for least, widths in reversed(known) if rows >= least)


def choose_domains(domains: int) -> int:
    """Choose how many domains a step meets: all (0), or some of many."""
    return SOME if domains > SOME else 0


def choose_members(recipe: Recipe, is_image: bool = False) -> int:
    """Choose how many nets predict together: some of a table's, which are small; one net of any other kind."""
    spec = recipe.choose_spec(is_image)
    is_small = spec is not None and spec.name == "mlp" and not is_image
    return NETS if is_small and isinstance(recipe.algorithm, Algorithm) else 1


def choose_steps(rows: int, domains: int, protocol: Protocol, is_image: bool = False) -> int:
    """Choose the number of steps: those that meet every row PASSES times, in hundreds, from FEWEST to MOST."""
    if is_image:
        return FEWEST
    met = protocol.batch * protocol.count_domains(domains)
    return min(MOST, max(FEWEST, round(PASSES * rows / met / 100) * 100))
