from __future__ import annotations

import pytest
import torch

from seqdg.base import UsageError
from seqdg.bench import STACK, Group
from seqdg.paper.study import choose_steps, embed, is_one_net, walk


def test_a_curve_is_looked_at_from_start_to_end_at_even_distances():
    assert choose_steps(100, 4) == [0, 25, 50, 75, 100]
    assert choose_steps(3, 10) == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_walk_ends_at_the_weights_that_a_run_of_the_same_trial_deploys(dataset, study):
    made = study(dataset(), ["fo-s-mldg"], trials=2)
    stack = made.build_stack("fo-s-mldg")
    *_, state = walk(stack, "agg", 5)
    records = STACK.train(Group(made.plan["fo-s-mldg"]), made.session)
    logits, y = stack.predict(stack.deploy(state), torch.stack([j.split.test[0] for j in stack.jobs]))
    accuracy = (logits.argmax(-1) == y).double().mean(1).tolist()
    assert accuracy == pytest.approx([r.history[-1].held_out["accuracy"][0] for r in records])


def test_the_embedding_of_one_net_is_what_enters_its_head(dataset, study):
    stack = study(dataset(), ["agg"]).build_stack("agg")
    weights = stack.deploy(stack.start())
    rows = torch.arange(20)[None]
    z = embed(stack, weights, rows)
    own = {name: w[0] for name, w in weights.items()}
    torch.testing.assert_close(stack.net.head(own, z[0]), stack.predict(weights, rows)[0][0])


def test_the_embedding_of_an_ensemble_has_those_of_all_its_nets_side_by_side(dataset, study):
    stack = study(dataset(), ["ensemble"]).build_stack("ensemble")
    weights = stack.deploy(stack.start())
    assert not is_one_net(stack, weights)
    z = embed(stack, weights, torch.arange(20)[None])
    assert z.shape == (1, 20, 3 * 8)
    torch.testing.assert_close(z[..., :8], z[..., 8:16])  # equal copies at the start


def test_what_cannot_run_is_refused_before_anything_is_trained(dataset, study):
    with pytest.raises(UsageError, match="There is no algorithm 'nothing'"):
        study(dataset(), ["nothing"]).plan  # noqa: B018
    with pytest.raises(UsageError, match="This run has no algorithm 'mldg'"):
        study(dataset(), ["agg"], settings=["mldg.alpha=1"]).plan  # noqa: B018


def test_a_study_says_what_its_numbers_are_of(dataset, study):
    description = study(dataset(), ["agg", "fo-mldg"], trials=2, seed=5, settings=["fo-mldg.alpha=0.7"]).describe()
    assert description["seeds"] == [5, 6]
    assert description["held_out"] == "d"
    assert description["settings"] == {"agg": {}, "fo-mldg": {"alpha": "0.7", "beta": "1.0"}}
