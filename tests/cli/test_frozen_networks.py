"""Pictures and text of the user's own, trained on by the features of a frozen network: fit, save, predict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import seqdg as package
from command import Done, seqdg
from packages import make_text_encoder, need, save
from seqdg import UsageError
from seqdg.nets import NetSpec, build_net

COLORS = {"cat": (200, 60, 40), "dog": (40, 60, 200)}
QUICK = ["--trials", "1", "--workers", "0", "--device", "cpu"]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQDG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of two colors in three domains, each with a brightness of its own."""
    root, draw = tmp_path_factory.mktemp("pictures") / "photos", np.random.default_rng(0)
    for d, domain in enumerate(("day", "dusk", "night")):
        for name, color in COLORS.items():
            (root / domain / name).mkdir(parents=True)
            for i in range(12):
                pixels = np.array(color) * (1 - 0.2 * d) + draw.normal(0, 40, (12, 12, 3))
                picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                picture.save(root / domain / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = build_net(NetSpec("resnet18"), (3, 32, 32), 4, torch.Generator().manual_seed(3)).module
    return save(module.state_dict(), tmp_path_factory.mktemp("weights") / "w.safetensors")


def frozen(weights: Path) -> list[object]:
    return ["--net", "resnet18", "--weights", weights, "--no-finetune", "--image-size", 32]


@pytest.fixture(scope="module")
def fitted(photos: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "m"
    words = ["fit", photos, *frozen(weights), "--choose", "--algorithms", "logistic,knn,random-forest", *QUICK]
    done = seqdg(*words, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "resnet18 is frozen, and its features are trained on; --finetune trains it." in done.stderr
    assert "in the ensemble" in done.stdout or "ensemble" in (out / "card.md").read_text()
    return out


@pytest.mark.slow
def test_the_model_holds_the_network_and_predicts_from_pictures(fitted, photos, weights, tmp_path):
    done = seqdg("predict", fitted, photos, "--out", tmp_path / "p.csv", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Accuracy on 72 labelled rows: ")
    written = pd.read_csv(tmp_path / "p.csv")
    features = package.extract_features(photos, net="resnet18", weights=weights, size=32, device="cpu")
    model = package.DomainClassifier.load(fitted, device="cpu")
    assert list(written["file"]) == list(features.paths)
    np.testing.assert_allclose(written[["p_cat", "p_dog"]], model.predict_proba(features), atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(photos), model.predict_proba(features), atol=1e-5)
    some = [photos / name for name in features.paths[:3]]
    np.testing.assert_allclose(model.predict_proba(some), model.predict_proba(features)[:3], atol=1e-5)
    assert "512 features of resnet18, made of pictures" in (fitted / "card.md").read_text()
    weights.rename(weights.with_suffix(".away"))  # the model needs no file of the user's
    assert len(package.DomainClassifier.load(fitted, device="cpu").predict(some)) == 3
    weights.with_suffix(".away").rename(weights)


@pytest.mark.slow
def test_a_backbone_that_was_changed_after_the_model_was_saved_is_refused(fitted, tmp_path):
    copy = tmp_path / "copy"
    for file in fitted.rglob("*"):
        if file.is_file():
            (copy / file.relative_to(fitted)).parent.mkdir(parents=True, exist_ok=True)
            (copy / file.relative_to(fitted)).write_bytes(file.read_bytes())
    content = bytearray((copy / "backbone" / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "backbone" / "weights.safetensors").write_bytes(bytes(content))
    with pytest.raises(UsageError, match=r"weights\.safetensors was changed after the model was saved"):
        package.DomainClassifier.load(copy)
    (copy / "backbone" / "weights.safetensors").unlink()
    with pytest.raises(UsageError, match=r"weights\.safetensors cannot be read"):
        package.DomainClassifier.load(copy)


def test_a_features_file_is_fitted_and_predicted_like_a_table(photos, weights, tmp_path):
    out = tmp_path / "f.safetensors"
    extracted = package.extract_features(photos, net="resnet18", weights=weights, size=32, device="cpu")
    extracted.save(out)
    done = seqdg("fit", out, "--algorithms", "logistic", *QUICK, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "m" / "backbone").exists()
    done = seqdg("predict", tmp_path / "m", out, "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    assert "Accuracy on 72 labelled rows" in done.stdout
    done = seqdg("predict", tmp_path / "m", photos, "--out", tmp_path / "q.csv")
    assert done.returncode == 2
    assert "The model reads 512 features of resnet18 and does not hold that network" in done.stderr
    other = package.extract_features(photos, net="resnet18", weights=weights, size=33, device="cpu")
    other.save(tmp_path / "other.safetensors")
    done = seqdg("predict", tmp_path / "m", tmp_path / "other.safetensors", "--out", tmp_path / "q.csv")
    assert done.returncode == 2
    assert "does not hold the features that the model reads" in done.stderr
    assert "the preprocessing is" in done.stderr


@pytest.mark.slow
def test_features_are_fitted_and_compared_in_python(photos, weights):
    features = package.extract_features(photos, net="resnet18", weights=weights, size=32, device="cpu")
    model = package.DomainClassifier("logistic").fit(features, features.y, domains=features.domains)
    assert model.score(features, features.y) > 0.9
    compared = package.compare(features, features.y, features.domains, ["logistic", "knn"], seeds=1, verbose=0)
    assert compared.estimator.predict(photos).tolist() == compared.estimator.predict(features).tolist()


def test_a_network_of_the_users_own_is_named_as_what_is_missing(photos, tmp_path):
    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten()).eval()
    features = package.extract_features(photos, net=net, size=8, device="cpu")
    model = package.DomainClassifier("logistic").fit(features, features.y, domains=features.domains)
    assert model.predict(photos).tolist() == model.predict(features).tolist()
    model.save(tmp_path / "m")
    again = package.DomainClassifier.load(tmp_path / "m")
    assert again.predict(features).tolist() == model.predict(features).tolist()
    with pytest.raises(UsageError, match="does not hold that network: it was fitted to a features file, or with a mod"):
        again.predict(photos)


@pytest.mark.slow
def test_finetuning_starts_from_the_weights_that_are_given(photos, weights, tmp_path):
    words = ["fit", photos, "--net", "resnet18", "--weights", weights, "--finetune", "--image-size", 32, "--steps", 2]
    done = seqdg(*words, "--algorithms", "agg", "--no-estimate", "--device", "cpu", "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "m" / "model.json").read_text())
    assert about["net"]["name"] == "resnet18"
    assert about["net"]["pretrained"]
    assert about["batchnorm"] == "frozen"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["photos", "--weights", "w.pth"], "Of which network is w.pth? Name it with --net"),
        (["photos", "--net", "dinov2-small", "--weights", "w.pth"], "The weight file w.pth cannot be read"),
        (["t.csv", "--finetune", "--label", "y", "--domain", "d"], "--finetune is for pictures, and t.csv is a table"),
        (["t.csv", "--weights", "w.pth", "--label", "y", "--domain", "d"], "--weights is for pictures, and t.csv"),
        (["t.csv", "--text", "y", "--label", "y", "--domain", "d"], "'y' is named with --text, and has another part"),
        (["t.csv", "--text", "z", "--label", "y", "--domain", "d"], "t.csv has no column 'z'"),
        (["photos", "--text", "a"], "--text is for tables, and photos is not one"),
    ],
)
def test_what_the_command_refuses(photos, tmp_path, words: list[str], sentence: str):
    if "dinov2-small" in words:
        need("timm")
    (tmp_path / "t.csv").write_text("a,y,d\n1,u,n\n2,v,s\n")
    (tmp_path / "photos").symlink_to(photos)
    done = seqdg("fit", *words, "--out", "m", cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr


def reviews(folder: Path, rows: int = 90) -> Path:
    draw = np.random.default_rng(0)
    good = draw.random(rows) < 0.5
    words = [" ".join(["a", "good" if g else "bad", draw.choice(["book", "film"])]) for g in good]
    table = pd.DataFrame({"review": words, "stars": 3 + draw.normal(size=rows), "shop": np.arange(rows) % 3})
    table.assign(liked=np.where(good, "yes", "no")).to_csv(folder / "r.csv", index=False)
    return folder / "r.csv"


def fit_reviews(folder: Path, *more: object) -> Done:
    words = ["fit", reviews(folder), "--label", "liked", "--domain", "shop", "--text", "review"]
    return seqdg(*words, "--algorithms", "logistic", *QUICK, "--out", folder / "m", *more)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["", "tiny"])
def test_free_text_becomes_features_beside_other_columns(tmp_path, encoder):
    more: list[object] = []
    if encoder:
        need("transformers")
        more = ["--net", f"hf:{make_text_encoder(tmp_path / encoder)}"]
    done = fit_reviews(tmp_path, *more)
    assert done.returncode == 0, done.stderr
    if encoder:
        (tmp_path / encoder).rename(tmp_path / "away")  # the model has what it needs
    done = seqdg("predict", tmp_path / "m", tmp_path / "r.csv", "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    assert "Accuracy on 90 labelled rows: 100.0 %" in done.stdout
    model, table = package.DomainClassifier.load(tmp_path / "m"), pd.read_csv(tmp_path / "r.csv")
    assert model.predict(table).tolist() == pd.read_csv(tmp_path / "p.csv")["label"].tolist()
    card = (tmp_path / "m" / "card.md").read_text()
    assert "made of the text in review, and 1 other columns" in card
    assert "Columns: stars" in card
