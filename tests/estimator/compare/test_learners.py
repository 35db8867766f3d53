"""Learners that train no net as candidates of `compare`, and their models: fitted, saved, loaded, shown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import seqdg
from command import seqdg as run
from seqdg import DomainClassifier, Range, UsageError
from seqdg.bench import ArrayLearner, Learner, find_learner, register_learner
from seqdg.bench.learners import contract as module
from seqdg.estimator import export_onnx

NAMES = ("north", "east", "south", "west")


@dataclass(frozen=True)
class Nearest:
    """Tell apart by the nearest row of another set."""

    rows: NDArray[np.float64]
    labels: NDArray[np.int64]
    width: float
    classes: int

    def __call__(self, new):
        kernel = np.exp(-((new[:, None] - self.rows) ** 2).sum(-1) / self.width**2) + 1e-9
        votes = np.stack([kernel[:, self.labels == c].sum(1) for c in range(self.classes)], 1)
        return votes / votes.sum(1, keepdims=True)


class Neighbours(ArrayLearner):
    """Votes of all rows by their distance."""

    settings = {"width": 0.5}  # noqa: RUF012
    rules = {"width": {"above": 0.0, "search": Range(0.1, 2.0)}}  # noqa: RUF012
    fitted = Nearest
    seen: list = []  # noqa: RUF012

    def fit(self, x, y, domain, classes, seed, *, width):
        self.seen.append((x, y, domain, seed))
        return Nearest(x.astype(np.float64), y, width, classes)


class Unsaved(ArrayLearner):
    """Gives the shares of the classes, and says nothing of saving."""

    def fit(self, x, y, domain, classes, seed):
        shares = np.bincount(y, minlength=classes) / len(y)
        return lambda rows: np.tile(shares, (len(rows), 1))


class Recorder(Learner):
    """Makes records in a way of its own."""

    def propose(self, draft):
        return []

    def train(self, group, session, on_step=lambda step: None):
        return []


@pytest.fixture(autouse=True)
def learners(monkeypatch):
    for name in ("dica", "lre-svm"):  # now: a copy would forget what is imported later
        find_learner(name)
    monkeypatch.setattr(module, "_learners", dict(module._learners))
    register_learner("neighbours")(Neighbours)
    register_learner("unsaved")(Unsaved)
    register_learner("recorder")(Recorder)
    monkeypatch.setattr(Neighbours, "seen", [])


def make_rows(seed: int = 0, each: int = 50) -> tuple[NDArray[np.float64], NDArray[np.str_], NDArray[np.str_]]:
    """Rows whose class no line tells; domains have other units in the last column, which is noise."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(len(NAMES) * each, 3)) * [1, 1, 0.1]
    domains = np.repeat(NAMES, each)
    x[:, 2] += np.repeat(np.arange(len(NAMES)), each)
    return x, np.where(np.sign(x[:, 0]) == np.sign(x[:, 1]), "same", "other"), domains


TEMPLATE = DomainClassifier(steps=3, evaluations=1, device="cpu", hidden=(4,))
SMALL = {"dica": {"width": 0.3}, "lre-svm": {"most_rows": 60, "rounds": 1}}


def compare(*names: str, rules=("source-val",), seeds=1, **options):
    x, y, domains = make_rows()
    settings = {name: SMALL[name] for name in names if name in SMALL}
    return seqdg.compare(
        x, y, domains, names, {**settings, **options.pop("settings", {})}, estimator=TEMPLATE, rules=rules,
        seeds=seeds, **{"select": rules[0], "ensemble": False, **options},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["dica", "lre-svm", "neighbours"])
def test_a_learner_that_wins_is_fitted_saved_loaded_and_shown(name: str, tmp_path: Path) -> None:
    found = compare("agg", name)
    assert found.winner.algorithm == name
    assert found.expected is not None
    assert found.expected > 0.7
    model, (x, y, _) = found.estimator, make_rows(1)
    assert (model.predict(x) == y).mean() > 0.7
    p = model.predict_proba(x)
    assert np.allclose(p.sum(1), 1)
    assert np.array_equal(model.classes_[p.argmax(1)], model.predict(x))
    assert np.allclose(model.predict_proba(x[3:4]), p[3:4], atol=1e-9), "a row is predicted as if it were alone"
    assert model.step_ == 0
    assert set(model.validation_) == set(NAMES)
    model.save(tmp_path / "model")
    assert sorted(f.name for f in (tmp_path / "model").iterdir()) == ["card.md", "model.json", "model.safetensors"]
    again = DomainClassifier.load(tmp_path / "model", device="cpu")
    assert np.array_equal(again.predict_proba(x), p)
    assert again.get_params()["algorithm"] == name
    assert again.get_params()["settings"] == model.get_params()["settings"]
    card = (tmp_path / "model" / "card.md").read_text()
    assert f"# A model trained by {name}" in card
    assert "fitted once, no neural network" in card
    assert "Expected accuracy on the next domain" in card
    with pytest.raises(
        UsageError,
        match=f"{name} trains no neural network, and only networks and scikit-learn's own models are exported",
    ):
        export_onnx(model.model_, tmp_path / "model.onnx")


def test_each_trial_of_it_sees_the_sources_alone_scaled_by_themselves() -> None:
    compare("neighbours", baseline=None, refit=False)
    x, _, domains = make_rows()
    seen = {len(np.unique(domain)): [] for _, _, domain, _ in Neighbours.seen}
    for rows, _, domain, _ in Neighbours.seen:
        seen[len(np.unique(domain))].append(rows)
    assert len(seen[3]) == 4, "each domain is held out once"
    assert len(seen[4]) == 1, "and none for the final choice"
    for rows, out in zip(seen[3], NAMES, strict=True):
        sources = x[domains != out]
        assert len(rows) == 0.8 * len(sources), "the others are for validation, as for a net"
        lowest = [(sources[:, 2].min() - sources[:, 2].mean()) / sources[:, 2].std()]
        assert abs(rows[:, 2].min() - lowest[0]) < 0.25
        assert abs(rows[:, 2].mean()) < 0.1, "the mean of the sources is 0, whatever the held-out domain"


def test_it_is_judged_on_the_folds_of_the_nets_and_by_every_rule() -> None:
    found = compare("agg", "neighbours", rules=("source-val", "leave-one-out", "oracle"), refit=False)
    for rule in ("source-val", "leave-one-out", "oracle"):
        assert set(found.scores(rule)) == {"agg", "neighbours", "chosen"}
    counts = {o.algorithm: o.record.description["held_out"] for o in found.outcomes["source-val"]}
    assert set(counts) == {"agg", "neighbours"}


def test_a_search_draws_its_settings_and_no_learning_rate() -> None:
    found = compare("neighbours", baseline=None, search=4, refit=False)
    assert found.algorithms == {"neighbours": 4}
    assert found.winner.lr is None
    assert 0.1 <= found.winner.settings["width"] <= 2.0
    grid = compare("neighbours", baseline=None, settings={"neighbours": {"width": [0.2, 0.5]}}, refit=False)
    assert grid.algorithms == {"neighbours": 2}
    with pytest.raises(UsageError, match="neighbours has no learning rate: leave lr out"):
        compare("neighbours", settings={"neighbours": {"lr": 0.1}})
    with pytest.raises(UsageError, match="neighbours has no setting 'breadth'"):
        compare("neighbours", settings={"neighbours": {"breadth": 0.1}})


def test_the_same_seed_gives_the_same_model_and_the_arrays_are_all_of_it(tmp_path: Path) -> None:
    x, y, domains = make_rows()
    models = [DomainClassifier("dica", validation=0.0, device="cpu").fit(x, y, domains=domains) for _ in range(2)]
    assert models[0].validation_ == {}, "without validation rows it is fitted to all"
    for i, model in enumerate(models):
        model.save(tmp_path / str(i))
    assert (tmp_path / "0" / "model.safetensors").read_bytes() == (tmp_path / "1" / "model.safetensors").read_bytes()
    text = json.loads((tmp_path / "0" / "model.json").read_text())
    assert set(text["learner"]) == {"mean", "gamma", "classes"}


def test_what_cannot_be_is_refused_before_any_work(tmp_path: Path) -> None:
    x, y, domains = make_rows()

    def fit(name: str, x=x, y=y, domains=domains, **parameters):
        return DomainClassifier(name, device="cpu", **parameters).fit(x, y, domains=domains)

    for parameters, words in (
        ({"stop": 3}, "stop is 3, but dica takes no steps: leave it out"),
        ({"class_weight": "balanced"}, "dica weighs no classes: leave class_weight out"),
        ({"settings": {"breadth": 2}}, "dica has no setting 'breadth'"),
        ({"domains": ["one"] * 200}, "dica needs at least 2 source domains to learn from, and there is 1"),
        ({"x": np.zeros((200, 1, 8, 8)), "net": "convnet"}, "dica reads rows of numbers, and the data holds images"),
    ):
        with pytest.raises(UsageError, match=words):
            fit("dica", **parameters)
    with pytest.raises(UsageError, match="dica\\+ema: dica trains no net to wrap"):
        fit("dica+ema")
    with pytest.raises(UsageError, match="recorder makes records of trials, and no model that predicts new rows"):
        fit("recorder")
    unsaved = fit("unsaved")
    assert len(set(unsaved.predict(x))) == 1
    with pytest.raises(UsageError, match="Unsaved does not say how its models are saved: give it `fitted`"):
        unsaved.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_of_a_learner_that_is_not_there_says_so(tmp_path: Path) -> None:
    x, y, domains = make_rows()
    DomainClassifier("neighbours", device="cpu").fit(x, y, domains=domains).save(tmp_path / "model")
    del module._learners["neighbours"]
    with pytest.raises(UsageError, match="The model was trained by 'neighbours', which is not registered"):
        DomainClassifier.load(tmp_path / "model")


@pytest.mark.slow
def test_the_command_line_chooses_among_nets_and_learners(tmp_path: Path) -> None:
    x, y, domains = make_rows()
    lines = ["a,b,c,kind,where", *(f"{a},{b},{c},{k},{d}" for (a, b, c), k, d in zip(x, y, domains, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom seqdg.bench import ArrayLearner, register_learner\n\n\n"
        '@register_learner("flat")\nclass Flat(ArrayLearner):\n    """Knows nothing."""\n\n'
        "    def fit(self, x, y, domain, classes, seed):\n"
        "        return lambda rows: np.full((len(rows), classes), 1 / classes)\n"
    )
    fit = ("fit", "rows.csv", "--label", "kind", "--domain", "where", "--out", "model", "--device", "cpu")
    refused = run(*fit, "--choose", "--candidates", "agg,./mine.py:flat", cwd=tmp_path)
    assert refused.returncode == 2
    assert "Flat does not say how its models are saved" in refused.stderr
    done = run(
        *fit, "--choose", "--single", "--candidates", "agg,dica", "--set", "dica.width=0.3", "--steps", 3, "--seeds", 1,
        "--workers", 0, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dica (components = 0, eps = 0.001" in done.stdout
    shown = run("show", "model", cwd=tmp_path)
    assert "# A model trained by dica" in shown.stdout
    predicted = run("predict", "model", "rows.csv", "--out", "out.csv", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 201
    exported = run("export", "model", "--onnx", "model.onnx", cwd=tmp_path)
    assert exported.returncode == 2
    assert "dica trains no neural network" in exported.stderr
