"""Models of scikit-learn as ONNX files: they read what a net's file reads, and say what the model says."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from seqdg import DomainClassifier, DomainRegressor, UsageError
from seqdg.estimator import export_onnx
from seqdg.estimator import onnx_export as module
from seqdg.estimator.onnx_export import make_feed

pd = pytest.importorskip("pandas")
SMALL = {"random-forest": {"trees": 20}, "extra-trees": {"trees": 20}, "hist-gradient-boosting": {"rounds": 20}}


def make_table(seed: int = 0, rows: int = 240):
    """A table with numbers, missing values and categories, from three places."""
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(draw.normal(size=(rows, 3)) * [1, 50, 0.01] + [0, 300, 5], columns=["a", "b", "c"])
    table["kind"] = draw.choice(["red", "green", "blue"], rows)
    table["steps"] = draw.integers(0, 5, rows)
    number = table["a"] * 3 + (table["kind"] == "red") * 2 + table["steps"] / 2
    table.loc[draw.random(rows) < 0.1, "b"] = np.nan
    table.loc[draw.random(rows) < 0.1, "kind"] = None
    return table, number.to_numpy(), np.array(["x", "y", "z"])[draw.integers(0, 3, rows)]


@pytest.fixture(autouse=True, scope="module")
def one_front():
    """All models of this file read the same table: what makes its inputs is traced once, which takes seconds."""
    known = {}

    def export(model, preprocessing, outputs):
        if preprocessing.names not in known:
            known[preprocessing.names] = trace(model, preprocessing, outputs)
        return known[preprocessing.names]

    trace = module._export_table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_export_table", export)
        yield


def compare_onnx(model, tmp_path, tolerance: float = 1e-5):
    gap = export_onnx(model.model_, tmp_path / "model.onnx")
    assert gap <= 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert sorted(i.name for i in session.get_inputs()) == ["categories", "numbers"]
    new = make_table(1, 500)[0]
    new.loc[3, "kind"] = "never seen"
    feed = make_feed(model.model_, new)
    out = session.run(None, feed)
    names = [o.name for o in session.get_outputs()]
    if isinstance(model, DomainRegressor):
        assert names == ["prediction"]
        expected = model.predict(new)
        assert np.abs(out[0] - expected).max() <= tolerance * np.abs(expected).max()
    else:
        assert names == ["logits", "probabilities"]
        expected = model.predict_proba(new)
        assert np.abs(out[1] - expected).max() <= tolerance
        assert np.abs(np.exp(out[0]) - expected).max() <= tolerance
    moved = session.run(None, {**feed, "numbers": feed["numbers"] + [2.0, 0, 0, 0]})
    assert not np.allclose(moved[-1], out[-1]), "another input gives another output"
    return onnx.load(tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Column 'kind' has categories that were not in the training data")
@pytest.mark.parametrize("name", ["logistic", "hist-gradient-boosting", "random-forest", "extra-trees", "svc", "knn"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_says_the_same_in_onnx(name, classes, tmp_path):
    table, number, places = make_table()
    y = np.digitize(number, [1.5] if classes == 2 else [0.5, 3.0])
    model = DomainClassifier(name, settings=SMALL.get(name), device="cpu").fit(table, y, domains=places)
    file = compare_onnx(model, tmp_path)
    about = json.loads({p.key: p.value for p in file.metadata_props}["seqdg"])
    assert about["algorithm"] == name
    assert about["input"]["columns"] == list(table.columns), "the file says what it reads, as a net's does"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Column 'kind' has categories that were not in the training data")
@pytest.mark.parametrize("name", ["ridge", "hist-gradient-boosting", "random-forest", "extra-trees", "svc", "knn"])
def test_a_regressor_says_the_same_in_onnx(name, tmp_path):
    table, number, places = make_table()
    model = DomainRegressor(name, settings=SMALL.get(name), device="cpu")
    compare_onnx(model.fit(table, 1000 * number, domains=places), tmp_path, 2e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Column 'kind' has categories that were not in the training data")
@pytest.mark.parametrize(
    "estimator",
    [make_pipeline(PCA(3), LogisticRegression()), GradientBoostingClassifier(n_estimators=10), LinearSVC()],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_an_object_of_the_users_own_says_the_same_in_onnx(estimator, classes, tmp_path):
    table, number, places = make_table()
    y = np.digitize(number, [1.5] if classes == 2 else [0.5, 3.0])
    compare_onnx(DomainClassifier(estimator, device="cpu").fit(table, y, domains=places), tmp_path)


def test_what_cannot_be_converted_is_refused_in_a_sentence(tmp_path, monkeypatch):
    table, number, places = make_table()
    odd = make_pipeline(FunctionTransformer(np.sign), LogisticRegression())
    y = (number > 1.5).astype(int)
    model = DomainClassifier(odd, device="cpu").fit(table, y, domains=places)
    with pytest.raises(UsageError, match=r"LogisticRegression cannot be written as ONNX \(.*Keep the model"):
        export_onnx(model.model_, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
    model = DomainClassifier("logistic", device="cpu").fit(table, y, domains=places)
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(UsageError, match=r"pip install 'seqdg\[onnx\]'"):
        export_onnx(model.model_, tmp_path / "model.onnx")
