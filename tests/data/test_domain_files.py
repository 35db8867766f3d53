"""Feature files, one per domain, in the layouts that data sets are published in."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse
from pyarrow import csv, parquet

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset
from seqdg.data.features.domain_files import read_file

DOMAINS = ("amazon", "dslr", "webcam")


def spec(**options):
    return DataSpec("mine", path=("set",), **options)


def problems(root, **options):
    return "\n".join(check_dataset(spec(**options), root).problems)


def write(path, x, y, x_key="fts", y_key="labels"):
    """In the format that the ending says; `.h5.mat` is MATLAB 7.3, which has every array transposed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".h5.mat"):
        with h5py.File(path, "w", userblock_size=512) as file:
            file[x_key] = x.T
            file[y_key] = y[None, :].astype(float)
            file[x_key].attrs["MATLAB_class"] = np.bytes_("double")
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {x_key: x, y_key: y[:, None]})
    elif path.suffix == ".npz":
        np.savez(path, **{x_key: x, y_key: y})
    else:
        table = pa.table({**{f"f{i}": x[:, i] for i in range(x.shape[1])}, "label": y})
        (csv.write_csv if path.suffix == ".csv" else parquet.write_table)(table, path)


@pytest.fixture
def domains(tmp_path, rows):
    """Makes root/set/<domain><ending>; returns the root and what was written."""

    def make(ending=".mat", base=1, **options):
        written = {d: rows(base=base, seed=i, n=12 + i) for i, d in enumerate(DOMAINS)}
        for domain, (x, y) in written.items():
            write(tmp_path / "set" / f"{domain}{ending}", x, y, **options)
        return tmp_path, written

    return make


@pytest.mark.parametrize("ending", [".mat", ".h5.mat", ".npz", ".csv", ".parquet"])
def test_every_format_gives_the_same_rows_and_labels(domains, ending):
    root, written = domains(ending)
    data = load_dataset(spec(domains=DOMAINS, classes=("a", "b", "c")), root)
    assert data.domains == DOMAINS
    for domain, (x, y) in written.items():
        mine = data.rows(domain)
        np.testing.assert_array_equal(data.x[mine].numpy(), x.astype(np.float32))
        np.testing.assert_array_equal(data.y[mine].numpy(), y - 1)


def test_domains_and_classes_are_found_where_they_are_not_named(domains):
    root, _ = domains(".npz", base=4)
    data = load_dataset(spec(), root)
    assert data.domains == DOMAINS
    assert data.classes == ("4", "5", "6")


def test_the_same_rows_have_the_same_fingerprint_in_any_format(domains):
    root, _ = domains(".mat")
    before = load_dataset(spec(), root).fingerprint
    for domain in DOMAINS:
        (root / "set" / f"{domain}.mat").unlink()
    root, _ = domains(".parquet")
    assert load_dataset(spec(), root).fingerprint == before
    x, y = read_file(root / "set/dslr.parquet", spec(), [])[:2]
    x[0, 0] += 1
    write(root / "set/dslr.parquet", x, y)
    assert load_dataset(spec(), root).fingerprint != before


def test_office_caltech_surf_is_read_as_published(tmp_path, rows):
    for i, domain in enumerate(("amazon", "Caltech10")):
        x, y = rows(base=1, seed=i)
        write(tmp_path / "set" / f"{domain}_SURF_L10.mat", np.abs(x * 10).astype(np.uint8), y.astype(float))
    data = load_dataset(spec(domains=("amazon", "Caltech10"), classes=("a", "b", "c")), tmp_path)
    assert data.x.shape == (24, 6)
    assert data.y.unique().tolist() == [0, 1, 2]


def test_vlcs_decaf6_has_its_labels_in_the_last_column(tmp_path):
    draws = np.random.default_rng(0)
    (tmp_path / "VLCS").mkdir()
    names = ("VOC2007", "LabelMe", "Caltech101", "SUN09")
    written = {}
    for name in names:
        x, y = draws.normal(size=(10, 4096)), np.arange(10) % 5 + 1
        scipy.io.savemat(tmp_path / "VLCS" / f"{name}.mat", {"data": np.column_stack([x, y])})
        written[name] = x
    data = load_dataset(DataSpec("vlcs", path=("VLCS",), domains=names, label_base=1, classes=tuple("abcde")), tmp_path)
    assert data.shape == (4096,)
    np.testing.assert_allclose(data.x[data.rows("SUN09")].numpy(), written["SUN09"], rtol=1e-6)
    assert data.y[data.rows("LabelMe")].tolist() == [0, 1, 2, 3, 4] * 2


@pytest.mark.parametrize("layout", ["{domain}/{part}.mat", "{part}/{domain}.mat"])
def test_train_and_test_files_of_a_domain_are_joined(tmp_path, rows, layout):
    for i, domain in enumerate(("CALTECH", "SUN")):
        for j, part in enumerate(("test", "train")):
            write(tmp_path / "set" / layout.format(domain=domain, part=part), *rows(n=6, seed=2 * i + j))
    data = load_dataset(spec(domains=("CALTECH", "SUN")), tmp_path)
    want = np.concatenate([rows(n=6, seed=2)[0], rows(n=6, seed=3)[0]])
    np.testing.assert_array_equal(data.x[data.rows("SUN")].numpy(), want.astype(np.float32))


@pytest.mark.parametrize("ending", [".mat", ".h5.mat"])
def test_ixmas_has_a_column_per_video_and_more_actions_than_are_used(tmp_path, ending):
    draws = np.random.default_rng(0)
    labels = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12] * 2)
    for view in range(5):
        desc = draws.random((2000, len(labels)))
        path = tmp_path / "IXMAS" / f"data_cam{view}_bow2000{ending}"
        write(path, desc, labels, "desc", "labels")
        if ending == ".mat":  # as published, labels lie in a row
            scipy.io.savemat(path, {"desc": desc, "labels": labels[None, :]})
    actions = ("check watch", "cross arms", "scratch head", "sit down", "get up")
    data = load_dataset(
        DataSpec(
            "ixmas",
            path=("IXMAS",),
            files=("data_cam{domain}_bow2000" + ending,),
            domains=tuple("01234"),
            classes=actions,
            label_base=1,
            drop_other_labels=True,
        ),
        tmp_path,
    )
    assert data.x.shape == (50, 2000)
    assert data.y[data.rows("4")].tolist() == [0, 1, 2, 3, 4] * 2
    np.testing.assert_allclose(data.x[data.rows("4")[7]].numpy(), desc[:, 13], rtol=1e-6)
    assert "0: 12 rows of other classes left out." in data.notes


def test_one_npz_may_hold_every_domain_and_its_official_split(tmp_path, rows):
    arrays = {}
    for i, domain in enumerate(("photo", "art_painting")):
        x, y = rows(seed=i)
        arrays |= {f"{domain}_x": x.astype(np.float16), f"{domain}_y": y.astype(np.int8)}
        arrays |= {f"{domain}_is_val": np.arange(12) < 3, f"{domain}_path": np.array(["p"] * 12)}
    np.savez(tmp_path / "set.npz", **arrays)
    data = load_dataset(DataSpec("mine", path=("set.npz",), domains=("art_painting", "photo")), tmp_path)
    np.testing.assert_array_equal(data.x[data.rows("photo")].numpy(), arrays["photo_x"].astype(np.float32))
    assert data.validation.tolist() == ([True] * 3 + [False] * 9) * 2
    found = load_dataset(DataSpec("mine", path=("set.npz",)), tmp_path)
    assert found.domains == ("photo", "art_painting")
    missing = check_dataset(DataSpec("mine", path=("set.npz",), domains=("photo", "sketch")), tmp_path)
    assert any("has no domain 'sketch'" in p for p in missing.problems)


def test_sparse_and_headerless_files_are_read(tmp_path, rows):
    x, y = rows()
    (tmp_path / "set").mkdir()
    scipy.io.savemat(tmp_path / "set/a.mat", {"X": scipy.sparse.csc_matrix(x), "Y": y})
    np.savetxt(tmp_path / "set/b.csv", np.column_stack([x, y]), delimiter=",")
    data = load_dataset(spec(), tmp_path)
    np.testing.assert_allclose(data.x[data.rows("a")].numpy(), data.x[data.rows("b")].numpy(), rtol=1e-6)
    assert data.y[data.rows("b")].tolist() == y.tolist()


def test_row_normalizations_are_what_they_say(domains):
    root, written = domains()
    x = np.concatenate([x for x, _ in written.values()])
    for how, want in (
        ("l1", x / np.abs(x).sum(1, keepdims=True)),
        ("l2", x / np.sqrt((x**2).sum(1, keepdims=True))),
        ("zscore", (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)),
    ):
        np.testing.assert_allclose(load_dataset(spec(normalize=how), root).x.numpy(), want, rtol=1e-4, atol=1e-6)


def test_a_row_without_counts_stays_zero(tmp_path, rows):
    for domain in "ab":
        x, y = rows()
        x[3] = 0
        write(tmp_path / "set" / f"{domain}.mat", x, y)
    for how in ("l1", "l2", "zscore"):
        assert (load_dataset(spec(normalize=how), tmp_path).x[3] == 0).all()


def test_keys_can_be_given_and_are_asked_for_where_they_cannot_be_told(domains):
    root, written = domains(".npz", x_key="one", y_key="truth")
    x, y = written["amazon"]
    np.savez(root / "set/amazon.npz", one=x, two=x + 1, truth=y)
    assert "which array holds the features? Give x_key. It has: one [12, 6], two [12, 6], truth [12]." in problems(root)
    data = load_dataset(spec(x_key="one", y_key="truth"), root)
    np.testing.assert_array_equal(data.x[data.rows("amazon")].numpy(), x.astype(np.float32))
    assert "has no array 'three'" in problems(root, x_key="three", y_key="truth")
    assert "which array holds the labels? Give y_key." in problems(root, x_key="one")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_counted_in_every_domain(domains, value):
    root, written = domains()
    for domain in ("amazon", "webcam"):
        x, y = written[domain]
        x[[2, 5], 0] = value
        write(root / "set" / f"{domain}.mat", x, y)
    said = problems(root)
    assert "amazon has 2 of 12 rows with NaN or infinite features (counted from 0: 2, 5)" in said
    assert "webcam has 2 of 14 rows with NaN" in said


def test_domains_of_different_width_are_wrong(domains):
    root, written = domains()
    x, y = written["dslr"]
    write(root / "set/dslr.mat", x[:, :4], y)
    assert problems(root) == (
        "The domains have different numbers of features (amazon 6, dslr 4, webcam 6): they must have the same ones."
    )


def test_a_missing_domain_is_named(domains):
    root, _ = domains()
    said = problems(root, domains=("amazon", "dslrs", "kinect"))
    assert "has no domain 'dslrs'" in said
    assert "has no domain 'kinect'. Choose from: amazon" in said


def test_an_empty_domain_is_wrong(domains):
    root, _ = domains(".npz")
    np.savez(root / "set/dslr.npz", fts=np.empty((0, 6)), labels=np.empty(0, int))
    assert "The domain 'dslr' is empty" in problems(root)


def test_labels_from_1_where_0_was_said_are_noticed_and_the_other_way_round(domains):
    classes = ("a", "b", "c")
    root, _ = domains()
    said = problems(root, classes=classes, label_base=0)
    assert said == "The labels run from 1 to 3, but label_base = 0 allows 0 to 2: set label_base = 1."
    root, _ = domains(base=0)
    said = problems(root, classes=classes, label_base=1)
    assert said == "The labels run from 0 to 2, but label_base = 1 allows 1 to 3: set label_base = 0."


def test_labels_out_of_range_are_counted(domains):
    root, written = domains(base=0)
    x, y = written["dslr"]
    y[[0, 4, 5]] = 9, 9, -1
    write(root / "set/dslr.mat", x, y)
    said = problems(root, classes=("a", "b", "c"), label_base=0)
    assert said == "dslr has 3 labels out of range (-1, 9): 3 classes with label_base = 0 allow 0 to 2."


def test_where_the_labels_do_not_tell_their_base_it_is_asked_for(domains):
    root, _ = domains(base=1)
    said = problems(root, classes=("a", "b", "c", "d"))
    assert "does not tell whether the first class is 0 or 1: set label_base." in said


def test_labels_that_are_no_whole_numbers_are_wrong(domains):
    root, written = domains(base=0)
    x, y = written["dslr"]
    write(root / "set/dslr.mat", x, y + 0.5)
    assert "dslr has 13 labels not a whole number: 0.5, 1.5, 2.5." in problems(root)


def test_features_and_labels_of_different_length_are_wrong(domains):
    root, written = domains()
    x, y = written["dslr"]
    write(root / "set/dslr.mat", x, y[:-1])
    assert "'fts' has 13 rows and 'labels' 12 labels" in problems(root)


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_pickled_objects_in_an_npz_are_refused_and_not_run(domains, tmp_path):
    root, written = domains(".npz")
    x, y = written["dslr"]
    np.savez(root / "set/dslr.npz", fts=x, labels=y, extra=np.array([Trap(tmp_path / "ran")], dtype=object))
    assert "'extra' is an array of objects, which is refused" in problems(root)
    assert load_dataset(spec(x_key="fts", y_key="labels"), root).x.shape == (39, 6)  # those two alone are read
    (root / "set/dslr.npz").write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    assert "which is refused" in problems(root)
    np.savez(root / "one.npz", a_x=np.array([Trap(tmp_path / "ran")], dtype=object), a_y=np.zeros(1))
    (refusal, *_) = check_dataset(DataSpec("mine", path=("one.npz",)), root).problems
    assert "'a_x' is an array of objects" in refusal
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("extra", [np.array(["a", np.ones(3)], dtype=object), {"field": 1.0}])
def test_cells_and_structs_in_a_mat_file_are_refused(domains, extra):
    root, written = domains()
    x, y = written["dslr"]
    scipy.io.savemat(root / "set/dslr.mat", {"fts": x, "labels": y, "extra": extra})
    assert "'extra' is an array of objects" in problems(root)
    assert load_dataset(spec(x_key="fts", y_key="labels"), root).x.shape == (39, 6)
    scipy.io.savemat(root / "set/dslr.mat", {"fts": extra, "labels": y})
    assert "'fts' is an array of objects" in problems(root, x_key="fts", y_key="labels")


def test_cells_and_structs_in_a_mat_73_file_are_refused(domains):
    root, _ = domains(".h5.mat")
    with h5py.File(root / "set/dslr.h5.mat", "a") as file:
        file["name"] = np.frombuffer("as text".encode("utf-16-le"), np.uint16)[None]
        file["name"].attrs["MATLAB_class"] = np.bytes_("char")
    assert problems(root) == ""  # text is passed over
    with h5py.File(root / "set/dslr.h5.mat", "a") as file:
        file["cell"] = np.array([file["fts"].ref], dtype=h5py.ref_dtype)
    assert "'cell' is an array of objects, which is refused" in problems(root)
    with h5py.File(root / "set/dslr.h5.mat", "a") as file:
        del file["cell"]
        file.create_group("struct")
    assert "'struct' is an array of objects, which is refused" in problems(root)


@pytest.mark.parametrize("ending", [".mat", ".h5.mat", ".npz", ".csv", ".parquet"])
def test_a_file_cut_short_is_said_to_be_unreadable_and_the_others_are_read_on(domains, ending):
    root, _ = domains(ending)
    for domain in ("amazon", "webcam"):
        path = root / "set" / f"{domain}{ending}"
        path.write_bytes(path.read_bytes()[:300] if ending != ".csv" else b"f0,label\n1,2\n3\n")
    said = problems(root)
    for domain in ("amazon", "webcam"):
        assert f"{domain}{ending} cannot be read" in said
    assert list(check_dataset(spec(), root).counts.values()) == [13]


def test_two_files_for_one_domain_are_not_guessed_between(domains):
    root, written = domains()
    write(root / "set/dslr.npz", *written["dslr"])
    assert "several files that may be the domain 'dslr': dslr.mat, dslr.npz. Say `files`." in problems(
        root, domains=("amazon", "dslr")
    )
    assert check_dataset(spec(domains=("amazon", "dslr"), files=("{domain}.mat",)), root).ok


def test_an_error_lists_everything_that_is_wrong(domains):
    root, written = domains()
    x, y = written["dslr"]
    x[0] = np.nan
    write(root / "set/dslr.mat", x, y)
    with pytest.raises(UsageError) as error:
        load_dataset(spec(domains=("amazon", "dslr", "kinect"), counts={"amazon": 13}), root)
    lines = str(error.value).splitlines()
    assert lines[0] == "mine: 3 things are wrong with the data."
    assert [line[:2] for line in lines[1:]] == ["- "] * 3


def test_an_official_split_for_some_domains_only_is_wrong(tmp_path, rows):
    x, y = rows()
    np.savez(tmp_path / "set.npz", a_x=x, a_y=y, a_is_val=np.arange(12) < 4, b_x=x, b_y=y)
    said = check_dataset(DataSpec("mine", path=("set.npz",)), tmp_path).problems
    assert said == ("Only a have an official split: give b one, or none at all.",)
