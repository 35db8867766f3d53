from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

import seqdg
from seqdg.core import collect_rules, flatten_settings, with_settings
from seqdg.testing import CHECKS, Case, build_nets, check_algorithm, find_source_count
from seqdg.testing.checks import check_settings_act, find_longest
from toys import PAPER, mark_others


@pytest.mark.parametrize("name", mark_others(seqdg.list_algorithms(), pytest.mark.slow))
def test_every_registered_algorithm_keeps_the_contract(name):
    check_algorithm(seqdg.build(name))


def _by_position(name: str) -> list[str]:
    return [setting for setting, (_, rule) in collect_rules(seqdg.build(name)).items() if rule.get("per_position")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in seqdg.list_algorithms() if _by_position(name)])
def test_the_contract_is_kept_with_another_value_at_each_position(name):
    algorithm, net = seqdg.build(name), next(iter(build_nets().values()))
    sources = find_source_count(algorithm, net)
    for setting in _by_position(name):
        values = find_longest(algorithm, setting, net, sources)
        rising = tuple(value * (1 + 0.3 * i) + 0.01 for i, value in enumerate(values))
        algorithm = with_settings(algorithm, {setting: rising})
        assert flatten_settings(algorithm)[setting] == rising
    check_algorithm(algorithm)


def _choices() -> list[ParameterSet]:
    found = []
    for name in seqdg.list_algorithms():
        algorithm = seqdg.build(name)
        unused = algorithm.base.alone if isinstance(algorithm, seqdg.Sequential) else ()
        for setting, (default, rule) in collect_rules(algorithm).items():
            if setting in unused:
                continue
            others = (not default,) if isinstance(default, bool) else rule.get("choices", ())
            mark = pytest.mark.slow if name in PAPER else pytest.mark.soak
            found += [pytest.param(name, setting, other, marks=mark) for other in others if other != default]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting", "choice"), _choices())
def test_the_contract_is_kept_under_every_choice(name, setting, choice):
    algorithm = seqdg.build(name, **{setting: choice})
    for net in build_nets(algorithm.needs_points).values():
        case = Case(algorithm, net, find_source_count(algorithm, net))
        for check in CHECKS.values():
            if check is not check_settings_act:  # under one choice, a setting of another may rest
                check(case)
