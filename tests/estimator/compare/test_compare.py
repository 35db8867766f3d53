"""Choosing among algorithms: what may inform a choice, what is reported, and that it is the same every time."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import seqdg
from seqdg.base import UsageError
from seqdg.bench import Fixed, Proposal, plan_trials
from seqdg.estimator import DomainClassifier
from seqdg.estimator.compare.folds import Contender, Sweep
from seqdg.estimator.user_data import make_user_data, read_input
from seqdg.results import CRITERIA

QUICK = {"steps": 10, "hidden": (8,), "evaluations": 3}


def quick(**parameters):
    return DomainClassifier(**{**QUICK, **parameters})


def compared(hospitals, algorithms=("agg", "fo-s-mldg"), **how):
    x, y, domains = hospitals
    if "rules" in how:
        how.setdefault("select", how["rules"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return seqdg.compare(
            x, y, domains, list(algorithms), **{"estimator": quick(), "seeds": 2, "ensemble": False, **how}
        )


def nearly(value):
    """The same with every number rounded to six decimals."""
    if isinstance(value, dict):
        return {key: nearly(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [nearly(of) for of in value]
    return round(value, 6) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def found(hospitals):
    return compared(hospitals)


@pytest.mark.slow
def test_all_rules_come_from_one_sweep_and_oracle_is_marked(found):
    assert found.rules == ("source-val", "leave-one-out", "both", "both-near", "oracle")
    text = str(found)
    head, rows = text.split("by rule of choice\n")[1].split("\n", 1)
    assert head.split() == [
        "algorithm",
        "source-val",
        "leave-one-out",
        "both",
        "both-near",
        "(oracle)",
    ]
    for line in rows.split("\n(oracle):")[0].splitlines():
        assert line.split()[-1].startswith("(")
    assert "not a result" in text
    for name in ("agg", "fo-s-mldg", "chosen"):
        averages = {rule: found.scores(rule)[name]["average"] for rule in found.rules}
        assert averages["oracle"] >= max(averages.values()) - 1e-12


def test_the_expectation_is_that_of_the_choice_and_never_the_oracle_s(found):
    chosen = [found.scores("both-near")["chosen"][d] for d in found.domains]
    assert found.expected == pytest.approx(np.mean(chosen))
    low, high = found.interval
    assert low <= found.expected <= high <= 1
    assert found.scores()["chosen"]["worst"] == min(chosen)
    assert f"{100 * found.expected:.1f} %" in found.sentence


@pytest.mark.slow
def test_no_label_of_a_held_out_domain_informs_what_is_chosen_for_it(hospitals):
    """With that domain's labels exchanged, all that changes for it is how well the same choice does, and the oracle."""
    x, y, domains = hospitals
    wrong = np.where(domains == "east", np.where(y == "ill", "healthy", "ill"), y)
    how = {
        "settings": {"fo-s-mldg": {"alpha": [0.01, 0.3, 1.0]}},
        "refit": False,
        "estimator": quick(evaluations=5),
        "seeds": 1,
    }
    one, other = compared(hospitals, **how), compared((x, wrong, domains), **how)

    def choices(found, rule):
        both = (*found.outcomes[rule], *found.chosen[rule])
        return [(o.record.key, o.seed, o.step) for o in both if o.held_out == "east"]

    for rule in ("source-val", "leave-one-out", "both", "both-near"):
        assert choices(one, rule) == choices(other, rule)
    assert choices(one, "oracle") != choices(other, "oracle")


@pytest.mark.slow
def test_the_oracle_is_nowhere_but_under_its_name(hospitals):
    """What is expected, told, warned of and written on the card is the same where the oracle is not even computed.

    Up to rounding: without leave-one-out other trials share a stack, and some CPUs round a product by its place in one.
    """
    x, _, _ = hospitals
    how = {"settings": {"fo-s-mldg": {"alpha": [0.01, 0.3, 1.0]}}, "seeds": 2, "estimator": quick(evaluations=5)}
    one, other = compared(hospitals, select="source-val", **how), compared(hospitals, rules=["source-val"], **how)
    assert one.scores("oracle")["chosen"]["average"] > one.expected  # else there would be nothing to mix up
    assert other.rules == ("source-val",)
    assert one.winner == other.winner
    assert one.interval == pytest.approx(other.interval)
    assert nearly(one.describe()) == nearly(other.describe())
    assert nearly(one.scores()) == nearly(other.scores())
    assert "oracle" not in str(other)
    np.testing.assert_array_equal(one.estimator.predict_proba(x), other.estimator.predict_proba(x))


@pytest.mark.slow
def test_the_same_call_twice_gives_the_same_answer(hospitals, found):
    again = compared(hospitals)
    assert str(again) == str(found)
    x, _, _ = hospitals
    np.testing.assert_array_equal(again.estimator.predict_proba(x), found.estimator.predict_proba(x))


def test_the_winner_is_fitted_on_all_domains_and_knows_what_to_expect(hospitals, found):
    x, y, domains = hospitals
    winner = clone(found.estimator).fit(x, y, domains=domains)
    np.testing.assert_array_equal(winner.predict_proba(x), found.estimator.predict_proba(x))
    assert sorted(found.estimator.domains_) == sorted(found.domains)
    facts = found.estimator.model_.facts["estimate"]
    assert facts["expected"] == found.expected
    assert set(facts["held_out"]) == {*found.domains, "average", "worst"}
    assert set(facts["held_out"]["east"]) == {name for name, unit in CRITERIA.items() if unit.is_defined(2)}
    assert facts["held_out"]["worst"]["log_loss"] == max(facts["held_out"][d]["log_loss"] for d in found.domains)


@pytest.mark.slow
def test_where_the_lead_over_the_simplest_may_be_chance_it_wins_and_no_warning_contradicts(hospitals):
    how = {"algorithms": ["fo-s-mldg"], "settings": {"fo-s-mldg": {"alpha": 0.0}}, "seeds": 1, "refit": False}
    found = compared(hospitals, **how)
    assert (found.winner.algorithm, found.warnings) == ("agg", [])
    assert found.ranked[found.reason.simplest] == "agg"
    assert "agg is the simplest" in str(found) or "its lead over agg, the simplest, may be chance: " in str(found)


def test_what_is_taken_though_nothing_tells_it_from_the_simplest_is_warned_of():
    """In a few small steps of plain SGD, the sum over domains gets further than their mean; in one of two domains, by
    so much that their difference is within its standard error."""
    draw = np.random.default_rng(0)
    y = np.arange(240) % 2
    x = draw.standard_normal((240, 2)) + np.stack([y, y], 1) * 3
    how = {
        "settings": {"fo-s-mldg": {"beta": 1.0}}, "estimator": quick(steps=6, evaluations=1, optimizer="sgd", lr=0.02),
        "seeds": 4, "refit": False, "rules": ["source-val"],
    }  # fmt: skip
    sure = compared((x, y, np.arange(240) // 60), select="source-val", **how)
    assert (sure.winner.algorithm, sure.reason.exceeds_error, sure.warnings) == ("fo-s-mldg", True, [])
    assert sure.paired[0].verdict == "better than agg"
    unsure = replace(sure, reason=replace(sure.reason, lead=0.01, error=0.02))
    (warning,) = unsure.warnings
    assert "fo-s-mldg was chosen, but its lead over agg, which is simpler, may be chance (1.00 ± 2.00 points" in warning
    assert "the rule source-val-1se takes the simpler one" in warning
    leaning = replace(unsure, select="source-val-1se", winner=replace(sure.winner, algorithm="agg"))
    leaning = replace(leaning, chosen={"source-val-1se": sure.chosen["source-val"]})
    assert not leaning.warnings
    assert (
        "fo-s-mldg scores best by this rule, but its lead over agg, the simplest, may be chance: 1.00 ± 2.00 points"
        in "\n".join(leaning.how)
    )


def sweep_of(hospitals, seeds=1, **parameters):
    x, y, domains = hospitals
    recipe = quick(**parameters).make_recipe()
    user_data = make_user_data(read_input(x), y, domains, recipe, keep_missing=True)
    return Sweep(user_data, recipe, range(seeds), within=True)


def test_an_almost_nested_choice_trains_no_pairs_and_scores_by_each_source_held_out_alone(hospitals):
    nested = compared(hospitals, ["agg"], baseline=None, seeds=1, refit=False, select="leave-one-out")
    almost = compared(hospitals, ["agg"], baseline=None, seeds=1, refit=False, select="leave-one-out", nested=False)
    assert nested.nested
    assert not almost.nested
    assert "nested leave-one-domain-out" in " ".join(nested.how) or "was given" in nested.how[0]
    assert "No pairs of the 4 domains are held out: that would be 6 more trainings of every candidate" in str(almost)
    sweep = sweep_of(hospitals)
    sweep.nested = False
    candidate = Contender("agg", seqdg.build("agg"), sweep.recipe.protocol.lr)
    targets = [(), *((d,) for d in sweep.domains)]
    sweep.run({"agg": Fixed([Proposal(candidate.algorithm, candidate.lr)])}, targets, "leave-one-out")
    assert {len(r.held_out) for r in sweep.sink.records.values()} == {0, 1}
    scores = sweep.score_sources(("east",), candidate, "leave-one-out")
    for value, source in zip(scores, ("north", "south", "west"), strict=True):
        (record,) = sweep.list_records((source,), candidate)
        assert value == pytest.approx(find_best(record).held_out["accuracy"][0])


def test_leave_one_out_stopped_takes_the_number_of_steps_that_serves_held_out_sources_best(hospitals):
    sweep = sweep_of(hospitals, criterion="log_loss")
    candidate = Contender("agg", seqdg.build("agg"), sweep.recipe.protocol.lr)
    rule = "leave-one-out-stopped"
    sweep.run({"agg": Fixed([Proposal(candidate.algorithm, candidate.lr)])}, [(), ("east",)], rule)
    pairs = [sweep.list_records(("east", s), candidate)[0] for s in ("north", "south", "west")]
    curve = np.mean([[e.held_out["log_loss"][1] for e in r.history] for r in pairs], axis=0)
    assert sweep.find_stop(("east",), candidate, rule) == pairs[0].history[curve.argmin()].step
    assert sweep.score(("east",), candidate, rule) == pytest.approx(-curve.min())
    (outcome,) = sweep.select_outcomes(("east",), ["agg"], rule)
    assert outcome.step == pairs[0].history[curve.argmin()].step
    assert sweep.find_stop(("east",), candidate, "leave-one-out") is None


def find_best(record, criterion="accuracy", sign=1):
    """The evaluation that is best on source validation, the first of those alike."""
    return max(record.history, key=lambda e: (sign * round(np.mean(e.source[criterion]), 9), -e.step))


def test_both_is_the_mean_of_validation_and_of_held_out_scores_at_the_step_that_validates_best(hospitals):
    sweep = sweep_of(hospitals, criterion="log_loss")
    candidate = Contender("agg", seqdg.build("agg"), sweep.recipe.protocol.lr)
    sweep.run({"agg": Fixed([Proposal(candidate.algorithm, candidate.lr)])}, [(), ("east",)], "both")
    scores = sweep.score_sources(("east",), candidate, "both")

    def best(record):
        return find_best(record, "log_loss", -1)

    (outer,) = sweep.list_records(("east",), candidate)
    for i, source in enumerate(("north", "south", "west")):
        (inner,) = sweep.list_records(("east", source), candidate)
        mean = (best(outer).source["log_loss"][i] + best(inner).held_out["log_loss"][1]) / 2
        assert scores[i] == pytest.approx(-mean)


def test_leave_one_out_scores_a_target_by_sources_that_were_held_out_with_it(hospitals):
    sweep = sweep_of(hospitals)
    candidate = Contender("agg", seqdg.build("agg"), sweep.recipe.protocol.lr)
    sweep.run({"agg": Fixed([Proposal(candidate.algorithm, candidate.lr)])}, [(), ("east",)], "leave-one-out")
    values = []
    for source in ("north", "south", "west"):
        (record,) = sweep.list_records(("east", source), candidate)
        assert record.held_out == ("east", source)
        values.append(find_best(record).held_out["accuracy"][1])
    assert sweep.score(("east",), candidate, "leave-one-out") == pytest.approx(np.mean(values))
    records = [sweep.list_records((d,), candidate)[0] for d in sweep.domains]
    alone = [find_best(record).held_out["accuracy"][0] for record in records]
    assert sweep.score((), candidate, "leave-one-out") == pytest.approx(np.mean(alone))


def test_a_trial_is_the_same_in_a_stack_and_alone(hospitals):
    """Preprocessing included: it follows from the sources of each trial."""
    together, alone = sweep_of(hospitals), sweep_of(hospitals)
    lr = together.recipe.protocol.lr
    search = {"agg": Fixed([Proposal(seqdg.build("agg"), lr)])}
    together.run(search, [(), *((d,) for d in together.domains)], "source-val")
    candidate = Contender("agg", seqdg.build("agg"), lr)
    (trial,) = alone.make_trials(("west",), candidate)
    alone._run_trials([trial])
    ours, theirs = together.sink.records[trial.key], alone.sink.records[trial.key]
    for one, other in zip(ours.history, theirs.history, strict=True):
        np.testing.assert_allclose(one.held_out["log_loss"], other.held_out["log_loss"], rtol=1e-4)
        np.testing.assert_allclose(one.source["log_loss"], other.source["log_loss"], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{"select": "leave-one-out-stopped"}, {"criterion": "log_loss"}, {"criterion": "auroc"}]
)
def test_other_rules_and_criteria_choose_too(hospitals, how):
    found = compared(hospitals, seeds=1, **how)
    assert (found.select, found.criterion) == (
        how.get("select", "both-near"),
        how.get("criterion", "accuracy"),
    )
    assert found.interval[0] <= found.expected <= found.interval[1]
    if how.get("criterion") == "log_loss":
        assert found.scores()["agg"]["worst"] == max(found.scores()["agg"][d] for d in found.domains)


@pytest.mark.slow
def test_a_grid_and_a_search_add_candidates(hospitals):
    grid = compared(hospitals, settings={"fo-s-mldg": {"alpha": [0.01, 0.3]}}, seeds=1, rules=["source-val"])
    assert grid.algorithms == {"agg": 1, "fo-s-mldg": 2}
    drawn = compared(hospitals, search=3, seeds=1, rules=["source-val"])
    assert drawn.algorithms == {"agg": 3, "fo-s-mldg": 3}
    assert "among 6 candidates of 2 algorithms" in str(drawn)


def test_the_learning_rate_of_the_winner_is_fitted_and_told(hospitals):
    found = compared(
        hospitals, settings={"agg": {"lr": [1e-6, 0.1]}}, algorithms=["agg"], seeds=1, rules=["source-val"]
    )
    assert (found.algorithms, found.winner.lr, found.estimator.lr) == ({"agg": 2}, 0.1, 0.1)
    assert "agg (lr = 0.1) was chosen among 2 candidates" in str(found)
    for wrong, why in (("fast", "must be a number"), ([], "gives no value"), (-1.0, "at least 0")):
        with pytest.raises(UsageError, match=why):
            compared(hospitals, settings={"agg": {"lr": wrong}})


@pytest.mark.slow
def test_a_learning_rate_that_is_given_is_not_searched(hospitals):
    found = compared(hospitals, settings={"agg": {"lr": 0.1}}, search=3, seeds=1, rules=["source-val"])
    assert found.algorithms == {"agg": 1, "fo-s-mldg": 3}


@pytest.mark.slow
def test_optuna_searches_for_every_target_by_itself(hospitals):
    pytest.importorskip("optuna")
    found = compared(hospitals, search=3, sampler="optuna", seeds=1, rules=["source-val"])
    assert found.algorithms == {"agg": 3, "fo-s-mldg": 3}
    assert {o.held_out for o in found.chosen["source-val"]} == set(found.domains)
    assert str(compared(hospitals, search=3, sampler="optuna", seeds=1, rules=["source-val"])) == str(found)


def test_class_weights_follow_from_the_sources_of_each_trial(hospitals):
    sweep = sweep_of(hospitals, class_weight="balanced")
    candidate = Contender("agg", seqdg.build("agg"), sweep.recipe.protocol.lr)
    trials = [sweep.make_trials((d,), candidate)[0] for d in sweep.domains]
    groups = plan_trials(sweep.task, trials, sweep.net).groups
    assert [len({t.held_out for t in g.trials}) for g in groups] == [1, 1, 1, 1]
    weights = [sweep.task.make_loss(t, torch.device("cpu")).weight for t in trials]
    assert not np.allclose(weights[0], weights[1])


@pytest.mark.slow
def test_worker_processes_give_the_same_answer(hospitals):
    here = compared(hospitals, seeds=1, rules=["source-val"])
    assert str(compared(hospitals, seeds=1, rules=["source-val"], workers=2)) == str(here)


@pytest.mark.slow
def test_two_domains_leave_no_pairs_to_hold_out(hospitals):
    x, y, domains = hospitals
    two = np.isin(domains, ["east", "west"])
    found = compared((x[two], y[two], domains[two]), seeds=1)
    assert not found.nested
    assert "No pairs of the 2 domains are held out: they would leave too few for agg, fo-s-mldg" in str(found)
    with pytest.raises(
        UsageError, match="A nested comparison holds out two domains of 2, which leaves too few for agg"
    ):
        compared((x[two], y[two], domains[two]), seeds=1, nested=True)
    with pytest.raises(UsageError, match="MLDG needs at least 2 source domains, but there is 1"):
        compared((x[two], y[two], domains[two]), ["mldg"], seeds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = seqdg.compare(x[two], y[two], domains[two], estimator=quick(steps=2), seeds=1, refit=False)
    assert "coral+ema was left out" in str(few)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"select": "oracle"}, "oracle chooses by the held-out domain, and the next domain has no labels"),
        ({"select": "best"}, "There is no selection rule 'best'"),
        ({"rules": ["guess"]}, "There is no selection rule 'guess'"),
        ({"criterion": "f1"}, "There is no criterion 'f1'"),
        ({"sampler": "grid"}, "There is no sampler 'grid'"),
        ({"seeds": 0}, "0 seeds were asked for"),
        ({"algorithms": ["mlgd"]}, "There is no algorithm 'mlgd'"),
        ({"algorithms": [], "baseline": None}, "No candidate was named"),
        ({"settings": {"dann": {}}}, "There is no candidate to compare 'dann'"),
        ({"settings": {"fo-s-mldg": {"alpha": [0.1, 0.2]}}, "search": 3}, "has a grid of settings and a search"),
        ({"estimator": quick(stop=5)}, "A comparison chooses the step by itself"),
        ({"estimator": quick(validation=0)}, "There are no rows to validate on in east, north, south, west"),
        ({"estimator": quick(lr=1e30, optimizer="sgd")}, "Training diverged for every candidate"),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(hospitals, how, sentence):
    with pytest.raises(UsageError) as caught:
        compared(hospitals, **{"seeds": 1, **how})
    assert sentence in str(caught.value)


def test_rows_of_a_class_that_one_domain_alone_has_count_as_errors():
    """All other rows are told apart without a mistake, so the score is the share of rows that could be learned."""
    draw, classes = np.random.default_rng(0), np.array(["a", "b", "rare"])
    code, domains = np.tile([0, 1], 60), np.repeat(["east", "north", "west"], 40)
    code[:10] = 2
    x = np.stack([3.0 * code, draw.normal(size=120)], axis=1)
    comparison = seqdg.compare(x, classes[code], domains, ["logistic"], baseline=None, seeds=1)
    assert comparison.scores()["logistic"] == {"east": 0.75, "north": 1, "west": 1, "average": 2.75 / 3, "worst": 0.75}
    assert comparison.metrics()["east"]["worst_class"] == 0
    assert any("Only east has the class 'rare' (10 rows): with east held out" in note for note in comparison.notes)
    assert comparison.estimator.classes_.tolist() == ["a", "b", "rare"]
    assert comparison.estimator.predict([[6.0, 0.0]]).tolist() == ["rare"]
    two = np.where(domains == "west", "b", "a")  # with west held out, there is one class to learn
    found = seqdg.compare(x, two, domains, ["logistic", "agg"], estimator=quick(), seeds=1, refit=False, nested=False)
    assert max(scores["west"] for scores in found.scores().values()) < 0.1


@pytest.mark.slow
def test_one_row_of_a_class_that_no_other_clinic_has_stops_nothing(shared_data):
    table = pd.read_csv(shared_data / "thyroid_domains.csv")
    table = table[table["domain"] != "other"].groupby("domain").head(150).reset_index(drop=True)
    table.loc[table.index[table["domain"] == "STMW"][0], "label"] = "goitre"
    x = table.drop(columns=["label", "domain"])
    found = seqdg.compare(
        x, table["label"], table["domain"], ["logistic", "hist-gradient-boosting"], baseline=None, seeds=1
    )
    assert found.expected > 0.6
    assert "goitre" in found.estimator.classes_
    assert any("Only STMW has the class 'goitre' (1 row)" in note for note in found.notes)


def test_numbers_have_no_class_that_one_domain_alone_has():
    draw, domains = np.random.default_rng(0), np.repeat(["east", "north", "west"], 20)
    x = draw.normal(size=(60, 2))
    found = seqdg.compare(x, x[:, 0] + 0.5, domains, ["ridge"], baseline=None, seeds=1, refit=False, ensemble=False)
    assert found.notes == ()


def test_without_domains_nothing_can_be_held_out(hospitals):
    with pytest.raises(UsageError, match="give domains, a name or number for each row"):
        compared((*hospitals[:2], None))


def test_labels_that_name_rows_are_refused(hospitals):
    x, y, domains = hospitals
    with pytest.raises(UsageError, match=r"Is it an identifier of rows\? Give other labels, or use DomainRegressor"):
        compared((x, np.arange(len(y)), domains))


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["office-caltech10", pytest.param("pacs-features", marks=pytest.mark.soak)])
def test_real_features_give_a_verdict_with_the_chosen_below_the_oracle(shared_data, benchmark):
    from seqdg.bench import load_benchmark
    from seqdg.data import load_data

    data = load_data(load_benchmark(benchmark).data, shared_data, name=benchmark)
    names = np.array(data.domains)[data.domain.numpy()]
    rows = np.random.default_rng(0).permutation(len(names))[:1200]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = seqdg.compare(
            data.x.numpy()[rows], data.y.numpy()[rows], names[rows], ["agg", "fo-s-mldg", "ffo-s-mldg"],
            estimator=DomainClassifier(steps=60), seeds=1, refit=False, ensemble=False,
        )  # fmt: skip
    chance = 1 / len(data.classes)
    assert found.expected > 2 * chance
    assert found.scores("oracle")["chosen"]["average"] >= found.expected


def test_one_name_in_place_of_a_list_is_a_sentence(hospitals):
    with pytest.raises(UsageError, match=r"candidates is 'agg', but it must be a list, such as \['agg'\]"):
        seqdg.compare(*hospitals, "agg")


def test_a_baseline_that_was_not_named_is_said_to_be_compared(hospitals):
    said = "agg was not named, but is compared too, as the baseline, and may win."
    cheap = {"seeds": 1, "rules": ["source-val"]}
    found = compared(hospitals, ["logistic"], **cheap)
    assert list(found.algorithms) == ["agg", "logistic"]
    assert said in found.notes
    assert said not in compared(hospitals, ["agg", "logistic"], **cheap).notes
    alone = compared(hospitals, ["logistic"], **cheap, baseline=None)
    assert list(alone.algorithms) == ["logistic"]
    assert said not in alone.notes


def test_a_domain_of_one_row_and_the_name_of_a_column_are_refused_with_advice(hospitals):
    x, y, domains = hospitals
    lone = np.where(np.arange(len(y)) == 3, "harbor", domains)
    with pytest.raises(UsageError, match=r"validate on in harbor: .* leave its row out, or join it with another"):
        compared((x, y, lone))
    with pytest.raises(
        UsageError, match=r"domains is the word 'site': give one entry per row, such as table\['site'\]"
    ):
        compared((x.select_dtypes("number").to_numpy(), y, "site"))
    with pytest.raises(UsageError, match="y is the word 'ill': give one label per row"):
        compared((x, "ill", domains), estimator=quick())


@pytest.mark.parametrize("name", ["average", "worst"])
def test_a_domain_that_is_called_as_a_summary_is_refused(hospitals, name):
    x, y, domains = hospitals
    with pytest.raises(UsageError, match=f"A domain is called '{name}', as a summary .* rename it"):
        compared((x, y, np.where(domains == "east", name, domains)), ["logistic"], baseline=None, seeds=1)
