"""What `seqdg bench` and `seqdg check` say of data that are not right: sentences, exit code 2, and no traceback."""

from __future__ import annotations

import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from seqdg.results import Store

Spoil = Callable[[Path], None]


def arrays(root: Path, domain: str) -> dict[str, np.ndarray]:
    with np.load(root / "set" / f"{domain}.npz") as file:
        return {name: file[name] for name in file.files}


def rewritten(root: Path, domain: str, **changes: np.ndarray) -> None:
    np.savez(root / "set" / f"{domain}.npz", **{**arrays(root, domain), **changes})


def with_nan(root: Path) -> None:
    for domain in ("art", "sketch"):
        x = arrays(root, domain)["x"]
        x[3, 0] = np.nan
        rewritten(root, domain, x=x)


def narrow(root: Path) -> None:
    rewritten(root, "photo", x=arrays(root, "photo")["x"][:, :5])


def empty(root: Path) -> None:
    np.savez(root / "set/photo.npz", x=np.empty((0, 8)), y=np.empty(0, int))


def pickled(root: Path) -> None:
    np.savez(root / "set/photo.npz", x=np.array([{"a": 1}] * 20, dtype=object), y=np.arange(20) % 2)


def a_pickle(root: Path) -> None:
    (root / "set/photo.npz").write_bytes(pickle.dumps({"x": [1]}))


def a_cell(root: Path) -> None:
    (root / "set/photo.npz").unlink()
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = np.ones((2, 2)), "text"
    scipy.io.savemat(root / "set/photo.mat", {"x": np.ones((20, 8)), "y": np.arange(20) % 2, "extra": cells})


def only_in(domain: str, label: int) -> Spoil:
    def spoil(root: Path) -> None:
        y = arrays(root, domain)["y"]
        y[0] = label
        rewritten(root, domain, y=y)

    return spoil


TWO = 'path = "set"\nclasses = ["cat", "dog"]'


@pytest.mark.parametrize(
    ("spoil", "data", "sentences"),
    [
        (lambda root: shutil.rmtree(root), 'path = "set"', ["There is no folder", "Give the one that holds set."]),
        (lambda root: shutil.rmtree(root / "set"), 'path = "set"', ["There is no 'set' in"]),
        (
            lambda root: (root / "set/photo.npz").rename(root / "set/photos.npz"),
            'path = "set"\ndomains = ["art", "photo", "sketch", "clipart"]',
            ["has no domain 'photo'. Did you mean 'photos'?", "has no domain 'clipart'. Did you mean 'art'?"],
        ),
        (
            lambda root: None,
            'path = "set"\nclasses = ["cat", "dog", "horse"]\nlabel_base = 0',
            ["No domain has the class 'horse'."],
        ),
        (only_in("art", 2), 'path = "set"', ["Only art has the class '2': with art held out, no source domain"]),
        (empty, 'path = "set"', ["The domain 'photo' is empty: fill it or leave it out."]),
        (only_in("art", 7), f"{TWO}\nlabel_base = 0", ["art has 1 label out of range (7): 2 classes with label_base"]),
        (lambda root: None, f"{TWO}\nlabel_base = 1", ["The labels run from 0 to 1, but label_base = 1 allows 1 to 2"]),
        (
            with_nan,
            'path = "set"',
            [f"{d} has 1 of 20 rows with NaN or infinite features (counted from 0: 3)" for d in ("art", "sketch")],
        ),
        (narrow, 'path = "set"', ["different numbers of features (art 8, photo 5, sketch 8)"]),
        (pickled, 'path = "set"', ["'x' is an array of objects, which is refused."]),
        (a_pickle, 'path = "set"', ["photo.npz' is an array of objects, which is refused."]),
        (a_cell, 'path = "set"', ["'extra' is an array of objects, which is refused."]),
        (
            lambda root: None,
            'path = "set"\ncounts = { art = 21, photo = 20, sketch = 22 }',
            ["art has 20 rows where 21 are published.", "sketch has 20 rows where 22 are published."],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_features_is_said_and_nothing_runs(seqdg, features, benchmark_file, spoil, data, sentences):
    spoil(features)
    expect(seqdg, benchmark_file(data), features, sentences)


def cut_short(root: Path) -> None:
    photo = root / "set/photo/dog/1.png"
    photo.write_bytes(photo.read_bytes()[:-60])
    (root / "set/art/cat/0.png").write_bytes(b"")
    (root / "set/sketch/dog/notes.txt").write_text("no picture")


def climbing(root: Path) -> None:
    with zipfile.ZipFile(root / "set.zip", "w") as out:
        for file in sorted((root / "set").rglob("*.png")):
            out.write(file, file.relative_to(root / "set"))
        out.writestr("../../climbed.png", b"x")
        out.writestr("/etc/climbed.png", b"x")


def lists(root: Path) -> None:
    (root / "lists").mkdir()
    for domain in ("art", "photo", "sketch"):
        names = [(f"{domain}/{c}/{i}.jpg {n}\n", i) for n, c in enumerate(("cat", "dog"), 1) for i in range(4)]
        (root / f"lists/{domain}_train_kfold.txt").write_text("".join(line for line, i in names if i))
        (root / f"lists/{domain}_crossval_kfold.txt").write_text("".join(line for line, i in names if not i))


def uneven_lists(root: Path) -> None:
    lists(root)
    with (root / "lists/art_train_kfold.txt").open("a") as file:
        file.write("art/cat/99.jpg 1\n")
    Image.new("RGB", (8, 8)).save(root / "set/photo/dog/7.png")


@pytest.mark.parametrize(
    ("spoil", "data", "sentences"),
    [
        (
            cut_short,
            'path = "set"',
            [f"'{f}' cannot be decoded" for f in ("art/cat/0.png", "photo/dog/1.png", "sketch/dog/notes.txt")],
        ),
        (
            climbing,
            'path = "set.zip"',
            [f"the path '{p}' climbs out of the zip" for p in ("../../climbed.png", "/etc/climbed.png")],
        ),
        (
            uneven_lists,
            'path = "set"\nsplits = "lists"',
            ["art_train_kfold.txt names 1 file not there: art/cat/99.", "photo leave 1 file out: photo/dog/7."],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_pictures_is_said_and_nothing_runs(seqdg, pictures, benchmark_file, spoil, data, sentences):
    spoil(pictures)
    expect(seqdg, benchmark_file(data), pictures, sentences)


def expect(seqdg, file: Path, root: Path, sentences: list[str]) -> None:
    """From both commands, all of the sentences."""
    out = file.parent / "run"
    ran, checked = seqdg("bench", file, "--data", root, "--out", out), seqdg("check", file, "--data", root)
    assert not ran.stdout
    assert not Store.open(out).records()
    for done, said in ((ran, ran.stderr), (checked, checked.stdout)):
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        for sentence in sentences:
            assert sentence in said
    if len(sentences) > 1 and "There is no" not in sentences[0]:
        assert f"{len(sentences)} things are wrong" in ran.stderr
        assert f"{len(sentences)} things are wrong" in checked.stdout


def notes_of(out: Path) -> list[list[str]]:
    records = Store.open(out).records()
    assert records
    return [record.notes for record in records]


@pytest.mark.slow
def test_partial_data_run_where_that_is_allowed_and_every_record_says_so(seqdg, features, benchmark_file):
    file, out = benchmark_file('path = "set"\ncounts = { art = 21, photo = 20 }'), features / "run"
    done = seqdg("bench", file, "--data", features, "--out", out, "--allow-partial")
    assert done.returncode == 0, done.stderr
    note = "Partial data: art has 20 rows where 21 are published."
    assert f"note: {note}\n" in done.stderr
    assert notes_of(out) == [[note]] * 3


def test_a_list_that_names_absent_files_is_partial_data_too(seqdg, pictures, benchmark_file):
    lists(pictures)
    (pictures / "set/art/cat/2.png").unlink()
    file, out = benchmark_file('path = "set"\nsplits = "lists"', protocol='split = "official"'), pictures / "run"
    words = ["bench", file, "--data", pictures, "--out", out]
    assert seqdg(*words).returncode == 2
    done = seqdg(*words, "--allow-partial")
    assert done.returncode == 0, done.stderr
    assert notes_of(out) == [["Partial data: art_train_kfold.txt names 1 file not there: art/cat/2."]] * 3


def test_a_class_that_some_domains_lack_is_a_note_in_every_record(seqdg, pictures, benchmark_file):
    shutil.rmtree(pictures / "set/photo/cat")
    out = pictures / "run"
    done = seqdg("bench", benchmark_file(), "--data", pictures, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "note: The class 'cat' is missing from photo.\n" in done.stderr
    assert notes_of(out) == [["The class 'cat' is missing from photo."]] * 3


def test_a_class_of_one_domain_is_wrong_only_if_that_domain_is_held_out(seqdg, features, benchmark_file):
    only_in("art", 2)(features)
    words = ["bench", benchmark_file(), "--data", features, "--out", features / "run", "--held-out"]
    assert seqdg(*words, "photo,sketch").returncode == 0
    assert seqdg(*words, "art").returncode == 2
    assert seqdg("check", benchmark_file(), "--data", features).returncode == 2
    assert seqdg("check", benchmark_file(protocol='held_out = ["photo"]'), "--data", features).returncode == 0


@pytest.mark.filterwarnings("default:.* is damaged or of an older version")
def test_a_cache_that_was_cut_short_is_made_again(seqdg, pictures, benchmark_file, cache):
    words = ["bench", benchmark_file(), "--data", pictures, "--out"]
    whole = seqdg(*words, pictures / "first")
    assert whole.returncode == 0, whole.stderr
    (stored,) = cache.glob("*.npy")
    stored.write_bytes(stored.read_bytes()[:-1])
    again = seqdg(*words, pictures / "second")
    assert (again.returncode, again.stdout) == (0, whole.stdout)
    assert "is damaged or of an older version: its pictures are decoded again." in again.stderr


@pytest.mark.parametrize("name", ["pacs", "office-caltech10", "vlcs"])
def test_a_benchmark_s_data_must_be_given_and_be_there(seqdg, tmp_path, name):
    absent = seqdg("bench", name, "--out", tmp_path / "run", cwd=tmp_path)
    assert (absent.returncode, len(absent.stderr.splitlines())) == (2, 1)
    assert f"{name} does not come with seqdg: give the folder that holds" in absent.stderr
    elsewhere = seqdg("bench", name, "--data", tmp_path, "--out", tmp_path / "run")
    assert (elsewhere.returncode, len(elsewhere.stderr.splitlines())) == (2, 1)
    assert "There is neither" in elsewhere.stderr


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"net": 'name = "mlp"\nhidden = 64'}, "'hidden' in the [net] table of mine is 64, but it must be a list"),
        ({"net": "hidden = [4]"}, "There is no name in the [net] table of mine. Choose one of: mlp, convnet, resnet18"),
        ({"net": 'name = "mlp"\ndepth = 3'}, "The [net] table of mine has no key 'depth'."),
        ({"net": 'name = "mlp"\naugment = "PACS"'}, "There is no augmentation 'PACS'."),
        ({"net": 'name = "mlp"\nsize = -1'}, "size in [net] is -1."),
        ({"protocol": 'lr = "high"'}, "'lr' in the [protocol] table of mine is 'high', but it must be a number."),
        ({"protocol": "held_out = [1]"}, "'held_out' in the [protocol] table of mine is [1], but it must be a list of"),
        ({"protocol": 'split = "official"'}, "mine has no official split. Choose split = 'random'."),
        ({"protocol": "[algorithms.agg]\nlr = true"}, "'lr' in [algorithms.agg] of mine is True, but it must be"),
        ({"protocol": "[algorithms.agg]\ngamma = 1"}, "agg has no setting 'gamma'. Choose from: steps, batch"),
        ({"protocol": "[algorithms.aggg]\nlr = 1"}, "There is no algorithm 'aggg'. Did you mean 'agg'?"),
        ({"protocol": "[algorithms]\nagg = 1"}, "[algorithms.agg] of mine is 1, but it must be a table."),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_of_one_s_own_is_one_sentence(seqdg, features, benchmark_file, part, sentence):
    done = seqdg("bench", benchmark_file(**part), "--data", features, "--out", features / "run")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
