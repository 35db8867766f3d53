"""Algorithms by name, and chains of names: `agg+mixup+ema`, with parts from files of one's own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import pytest

import seqdg
from seqdg import Algorithm, Chainable, Sequential, UsageError, Wrapper, build, list_wrappers, register, setting
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
    register_chain,
    shorten,
    split_chain,
    strip_wrappers,
)
from seqdg.core.registry import _check_names


def test_the_names_can_be_listed_before_and_after_the_folder_of_that_name_is_imported():
    first = seqdg.list_algorithms()
    importlib.import_module("seqdg.algorithms.mldg")
    assert seqdg.list_algorithms() == first
    assert {"agg", "mldg", "fo-mldg", "s-mldg", "fo-s-mldg", "ffo-s-mldg"} <= set(first)


def test_every_name_builds_what_its_class_registered():
    for name in seqdg.list_algorithms():
        assert isinstance(build(name), Algorithm)
    assert build("fo-s-mldg", alpha=(0.05, 0.6), beta=(1.2,)).base.alpha == (0.05, 0.6)


def test_erm_is_another_name_of_agg_which_no_class_may_take():
    assert build("erm+ema", decay=0.9) == build("agg+ema", decay=0.9)
    assert (shorten("erm+ema"), list_inner_names("erm+ema")) == ("agg+ema", ("agg", "agg+ema"))
    assert shorten("domainbed:ERM") == "domainbed:ERM"
    with pytest.raises(UsageError, match=r"There is no algorithm 'ERM'\. Did you mean 'agg'\?"):
        build("ERM")
    with pytest.raises(UsageError, match="'erm' is another name of agg already: give AGG its own"):
        register("erm")(AGG)


def test_a_recipe_of_several_parts_has_one_name():
    assert build("erm++", head_share=0.2) == build("agg+lp+sma", head_share=0.2)
    assert shorten("erm++") == "agg+lp+sma"
    assert list_inner_names("erm++") == ("agg", "agg+lp", "agg+lp+sma")


def test_a_chainable_class_gets_its_sequential_name_by_itself():
    @register("toy")
    @dataclass(frozen=True)
    class Toy(Chainable):
        def extend(self, net, past, episode, i):
            return past

    assert build("toy") == Toy()
    assert build("s-toy") == Sequential(Toy())
    assert {"toy", "s-toy"} <= set(seqdg.list_algorithms())


def test_a_base_that_folds_into_itself_gets_no_sequential_name():
    @register("even")
    @dataclass(frozen=True)
    class Even(Chainable):
        symmetric = True

        def extend(self, net, past, episode, i):
            return past

    assert build("even") == Even()
    assert "s-even" not in seqdg.list_algorithms()
    with pytest.warns(UserWarning, match=r"Sequential\(Even\) is Even itself"):
        Sequential(Even())


def test_a_chain_may_have_a_name_that_its_base_has_not():
    @register_chain("s-only")
    @dataclass(frozen=True)
    class Only(Chainable):
        def extend(self, net, past, episode, i):
            return past

    assert build("s-only") == Sequential(Only())
    assert not {"only", "s-s-only"} & set(seqdg.list_algorithms())


def test_a_second_algorithm_of_the_same_name_is_an_error_that_names_both():
    @dataclass(frozen=True)
    class Other(Algorithm):
        pass

    with pytest.raises(UsageError, match=r"Two algorithms are named 'agg': seqdg\.algorithms\.agg\.AGG and .*Other\."):
        register("agg")(Other)
    assert type(build("agg")).__name__ == "AGG"


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        UsageError, match=r"There is no algorithm 's-mlgd'\. Did you mean 's-mldg'\? Choose from: agg, "
    ):
        build("s-mlgd")


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


def test_a_wrapper_acts_on_something_known():
    @dataclass(frozen=True)
    class Nowhere(Wrapper):
        """Stands nowhere."""

        acts_on = "beyond"

    with pytest.raises(UsageError, match=r"Nowhere has acts_on = 'beyond'\. Choose one of: inputs, loss, direction"):
        register("nowhere")(Nowhere)
