"""Our gradients are DomainBed's, on its own net and the same minibatches, where a checkout of it is at hand."""

from __future__ import annotations

import pytest

from domainbed_classes import assert_same_gradient, build_theirs, draw_episode
from seqdg import build

CASES = {
    "agg": ("ERM", {}, {}),
    "coral": ("CORAL", {"mmd_gamma": 1.3}, {"gamma": 1.3}),
    "mmd": ("MMD", {"mmd_gamma": 1.3}, {"gamma": 1.3}),
    "irm": ("IRM", {"irm_lambda": 7.0, "irm_penalty_anneal_iters": 0}, {"lam": 7.0}),
    "vrex": ("VREx", {"vrex_lambda": 7.0, "vrex_penalty_anneal_iters": 0}, {"lam": 7.0}),
    "iga": ("IGA", {"penalty": 20.0}, {"penalty": 20.0}),
    "ib-erm": ("IB_ERM", {"ib_lambda": 7.0, "ib_penalty_anneal_iters": 0}, {"lam": 7.0}),
    "ib-irm": (
        "IB_IRM",
        {"ib_lambda": 5.0, "irm_lambda": 7.0, "ib_penalty_anneal_iters": 0, "irm_penalty_anneal_iters": 0},
        {"lam": 7.0, "bottleneck": 5.0},
    ),
    "sd": ("SD", {"sd_reg": 0.2}, {"lam": 0.2}),
    "rsc": (
        "RSC",
        {"rsc_f_drop_factor": 0.45, "rsc_b_drop_factor": 1 / 3},
        {"feature_share": 0.45, "row_share": 1 / 3},
    ),
    "and-mask": ("ANDMask", {"tau": 0.5}, {"tau": 0.5}),
    "sand-mask": ("SANDMask", {"tau": 0.3, "k": 0.02}, {"tau": 0.3, "k": 0.02}),
}

BOTTLENECK = {"is_project": False, "is_normalized": False, "is_flipped": True}


@pytest.mark.parametrize("conditional", [False, True])
def test_the_direction_of_cad_is_domainbeds_gradient(conditional):
    theirs = build_theirs("CondCAD" if conditional else "CAD", lmbda=0.3, temperature=0.5, **BOTTLENECK)
    assert_same_gradient(build("cad", lam=0.3, temperature=0.5, conditional=conditional), theirs, draw_episode())


@pytest.mark.parametrize("domains", [2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_the_direction_is_domainbeds_gradient(name, domains):
    theirs, hparams, settings = CASES[name]
    episode = draw_episode(domains)
    assert_same_gradient(build(name, **settings), build_theirs(theirs, domains, **hparams), episode)


@pytest.mark.parametrize(
    ("name", "theirs"), [("irm", "IRM"), ("vrex", "VREx"), ("ib-erm", "IB_ERM"), ("ib-irm", "IB_IRM")]
)
def test_the_first_stage_is_domainbeds_before_the_penalty_is_annealed(name, theirs):
    late = {f"{kind}_penalty_anneal_iters": 500 for kind in ("irm", "vrex", "ib")}
    weights = {f"{kind}_lambda": 100.0 for kind in ("irm", "vrex", "ib")}
    first = build(name, lam=100.0).stages()[0][1]
    assert_same_gradient(first, build_theirs(theirs, **late, **weights), draw_episode())
