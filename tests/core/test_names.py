"""Chains of names: `agg+mixup+ema`, with parts from files of one's own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from seqdg import Algorithm, UsageError, Wrapper, build, list_wrappers, setting
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.ema import EMA
from seqdg.algorithms.mixup import Mixup
from seqdg.algorithms.sam import SAM
from seqdg.core import (
    find_core,
    flatten_settings,
    list_inner_names,
    list_layers,
    parse_settings,
    shorten,
    split_chain,
    strip_wrappers,
)
from seqdg.core.registry import _check_names


@pytest.mark.parametrize(
    ("name", "parts", "short"),
    [
        ("agg", ("agg",), "agg"),
        ("agg+mixup+ema", ("agg", "mixup", "ema"), "agg+mixup+ema"),
        ("./my.py:pull+ema", ("./my.py:pull", "ema"), "pull+ema"),
        ("agg+./my.py:mine+ema", ("agg", "./my.py:mine", "ema"), "agg+mine+ema"),
        ("package.module:pull+other.one:two", ("package.module:pull", "other.one:two"), "pull+two"),
        ("./c++/my.py:pull+ema", ("./c++/my.py:pull", "ema"), "pull+ema"),
        ("/a+b/c.py:one+/d+e/f.py:two", ("/a+b/c.py:one", "/d+e/f.py:two"), "one+two"),
        ("C:\\a+b\\c.py:one+ema", ("C:\\a+b\\c.py:one", "ema"), "one+ema"),
        ("domainbed:ERM", ("domainbed:ERM",), "domainbed:ERM"),
    ],
)
def test_a_name_is_split_at_each_plus_outside_paths(name, parts, short):
    assert split_chain(name) == parts
    assert shorten(name) == short


def test_inner_names_go_from_the_base_to_the_whole():
    assert list_inner_names("./a.py:pull+mixup+ema") == ("pull", "pull+mixup", "pull+mixup+ema")


def test_a_chain_is_built_from_the_inside_out():
    algorithm = build("fo-s-mldg+mixup+sam+ema", alpha=0.4, mix=0.3, rho=0.1, decay=0.5)
    assert isinstance(algorithm, EMA)
    assert isinstance(algorithm.base, SAM)
    assert isinstance(algorithm.base.base, Mixup)
    assert strip_wrappers(algorithm) == build("fo-s-mldg", alpha=0.4)
    assert type(find_core(algorithm)).__name__ == "FirstOrderMLDG"
    assert len(list_layers(algorithm)) == 5
    chosen = flatten_settings(algorithm)
    assert (chosen["alpha"], chosen["mix"], chosen["rho"], chosen["decay"]) == (0.4, 0.3, 0.1, 0.5)
    assert parse_settings(build("fo-s-mldg+mixup+sam+ema"), {"decay": "0.5", "rho": "0.1"}).decay == 0.5


def test_wrappers_are_listed_in_their_order():
    names = list_wrappers()
    assert [n for n in names if n in ("mixup", "sam", "sagm", "lp", "ema", "sma", "swad")] == [
        "mixup", "sagm", "sam", "lp", "ema", "sma", "swad",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("agg+ema+mixup", "'mixup' after 'ema'. The order is mixup"),
        ("agg+lp+sam", "'sam' after 'lp'. The order is"),
        ("agg+ema+ema", "the wrapper 'ema' twice: a chain has at most one of each kind"),
        ("agg+sam+sagm", "the wrapper 'sagm' beside 'sam': a chain has at most one of each kind"),
        ("agg+ema+swad", "the wrapper 'swad' beside 'ema'"),
        ("agg+emma", "There is no wrapper 'emma'. Did you mean 'ema'"),
        ("agg+mldg", "'mldg' is an algorithm and no wrapper"),
        ("ema", "'ema' is a wrapper: write it after an algorithm, as in agg+ema"),
        ("agg+", "'agg+' has an empty part"),
        ("+ema", "'+ema' has an empty part"),
        ("agg++ema", "has an empty part"),
        ("aggg+ema", "There is no algorithm 'aggg'. Did you mean 'agg'"),
        ("agg+./nowhere.py:mine", "There is no file './nowhere.py' to read algorithms from"),
    ],
)
def test_a_chain_that_cannot_be_is_a_sentence(name, words):
    with pytest.raises(UsageError) as caught:
        build(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_that_the_chain_lacks_is_a_sentence():
    with pytest.raises(UsageError, match=r"agg\+ema has no setting 'decy'\. Did you mean 'decay'"):
        build("agg+ema", decy=0.5)
    with pytest.raises(UsageError, match=r"decay is 1.5, but it must be at most 1"):
        build("agg+ema", decay=1.5)


@dataclass(frozen=True)
class Doubles(Wrapper):
    """Has a setting of EMA."""

    decay: float = setting(0.5)


def test_two_parts_with_a_setting_of_one_name_are_refused():
    with pytest.raises(UsageError, match=r"Two parts of agg\+doubles\+ema have the setting 'decay': EMA and Doubles"):
        _check_names(EMA(Doubles(AGG())), "agg+doubles+ema")


def test_a_wrapper_needs_a_known_place():
    from seqdg import register

    @dataclass(frozen=True)
    class Nowhere(Wrapper):
        """Stands nowhere."""

        place = "beyond"

    with pytest.raises(UsageError, match=r"Nowhere has the place 'beyond'\. Choose one of: inputs, direction, stages"):
        register("nowhere")(Nowhere)


def test_deploy_and_enter_as_they_were_before_are_accepted_with_a_warning():
    with pytest.warns(FutureWarning, match=r"Old.deploy takes no memory: let it take one more argument"):

        @dataclass(frozen=True)
        class Old(Algorithm):
            """As in seqdg 0.1."""

            def deploy(self, params):
                return {"deployed": params["w"]}

    assert Old().deploy({"w": 1}, {}) == {"deployed": 1}
    with pytest.warns(FutureWarning, match="Older.enter takes no memory"):

        @dataclass(frozen=True)
        class Older(Old):
            """As in seqdg 0.1."""

            def enter(self, net, params):
                return {"w": 2 * params["w"]}

    assert Older().enter(None, {"w": 1}, {"m": 3}) == ({"w": 2}, {"m": 3})
