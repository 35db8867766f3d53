"""What used to pass without a word: the command line says it, or refuses it in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import Done, seqdg

BRIEF = ["--steps", "5", "--hidden", "4", "--trials", "1", "--workers", "0"]
QUICK = [*BRIEF, "--algorithms", "fo-s-mldg+ema", "--no-estimate"]


def make_patients(rows: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    ill = draw.integers(0, 2, rows)
    columns = {
        "age": np.round(draw.normal(50, 9, rows)) + ill,
        "marker": np.round(draw.normal(size=rows) + ill, 3),
        "site": list("abc") * (rows // 3),
    }
    return pd.DataFrame(columns).assign(ill=np.where(ill, "yes", "no"))


def fit(frame: pd.DataFrame, folder: Path, *more: object, label: str = "ill", domain: str = "site") -> Done:
    frame.to_csv(folder / "t.csv", index=False)
    return seqdg(
        "fit", folder / "t.csv", "--label", label, "--domain", domain, *QUICK, "--out", folder / "m", "--force", *more
    )


def refused(done: Done) -> str:
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("seqdg: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    done = fit(make_patients(), folder)
    assert done.returncode == 0, done.stderr
    return folder / "m"


def predict(model: Path, frame: pd.DataFrame, folder: Path, *more: object) -> Done:
    frame.to_csv(folder / "new.csv", index=False)
    return seqdg("predict", model, folder / "new.csv", "--out", folder / "p.csv", "--force", *more)


def test_a_model_that_is_there_is_replaced_only_by_force(tmp_path):
    make_patients().to_csv(tmp_path / "t.csv", index=False)
    words = ["fit", tmp_path / "t.csv", "--label", "ill", "--domain", "site", *QUICK, "--out", tmp_path / "m"]
    assert seqdg(*words).returncode == 0
    before = (tmp_path / "m/model.safetensors").read_bytes()
    said = refused(seqdg(*words, "--seed", "1"))
    assert "holds a model already: add --force to replace it, or give another --out" in said
    assert (tmp_path / "m/model.safetensors").read_bytes() == before
    assert seqdg(*words, "--seed", "1", "--force").returncode == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() != before


def test_predictions_that_are_there_are_replaced_only_by_force(model, tmp_path):
    (tmp_path / "p.csv").write_text("mine\n")
    make_patients().to_csv(tmp_path / "new.csv", index=False)
    words = ["predict", model, tmp_path / "new.csv", "--out", tmp_path / "p.csv"]
    assert "p.csv is there already: add --force to replace it, or give another --out" in refused(seqdg(*words))
    assert (tmp_path / "p.csv").read_text() == "mine\n"
    assert seqdg(*words, "--force").returncode == 0
    assert (tmp_path / "p.csv").read_text() != "mine\n"


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("export", "model"), "model.onnx"),
        (("features", "pictures", "--net", "dinov2-small"), "features.safetensors"),
        (("predictions", "run"), "predictions.csv"),
        (("pack", "run"), "trials.parquet"),
        (("importance", "model", "t.csv"), "importance.csv"),
        (("learning-curve", "t.csv"), "by_training.csv"),
    ],
)
def test_every_command_refuses_to_replace_a_file_before_it_reads_or_trains_anything(tmp_path, words, out):
    (tmp_path / out).write_text("mine")
    is_folder = words[0] in ("pack", "importance", "learning-curve")
    command = [*words, "--out", tmp_path if is_folder else out]
    done = seqdg(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{out} is there already: add --force to replace it, or give another --out." in done.stderr
    assert "there already" not in seqdg(*command, "--force", cwd=tmp_path).stderr
    below = tmp_path / out / "below.csv" if words[0] != "features" else tmp_path / out / "below.safetensors"
    assert f"{tmp_path / out} is a file. Give another --out." in seqdg(*words, "--out", below, cwd=tmp_path).stderr
    assert (tmp_path / out).read_text() == "mine"


def test_labels_that_the_model_does_not_know_are_named_and_not_counted(model, tmp_path):
    frame = make_patients()
    rest = predict(model, frame.iloc[20:], tmp_path)
    frame.loc[:19, "ill"] = ["perhaps"] * 15 + ["Yes"] * 5
    done = predict(model, frame, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == rest.stdout
    assert done.stdout.startswith("Accuracy on 40 labelled rows: ")
    said = "note: 20 rows have a label that the model does not know (perhaps, Yes): they are left out of the accuracy."
    assert said in done.stderr


def test_labels_of_which_none_is_known_give_no_accuracy(model, tmp_path):
    done = predict(model, make_patients().assign(ill=["sick", "well"] * 30), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "note: 60 rows have a label that the model does not know (sick, well)" in done.stderr
    assert "The model knows: no, yes." in done.stderr
    assert len(pd.read_csv(tmp_path / "p.csv")) == 60


def test_a_column_without_a_value_is_noted_in_training_too(tmp_path):
    done = fit(make_patients().assign(pulse=np.nan), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: Column 'pulse' is empty, in all 60 rows: the model learns nothing of it." in done.stderr
    assert "'age' is empty" not in done.stderr


def test_a_column_without_a_value_is_noted_and_a_table_without_any_is_refused(model, tmp_path):
    done = predict(model, make_patients().assign(marker=np.nan), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: Column 'marker' is empty, in all 60 rows" in done.stderr
    (tmp_path / "p.csv").unlink()
    said = refused(predict(model, make_patients().assign(marker=np.nan, age=np.nan), tmp_path))
    assert "No column that the model reads holds any value" in said
    assert not (tmp_path / "p.csv").exists()
    some = make_patients()
    some.loc[1:, "marker"] = np.nan
    assert "is empty" not in predict(model, some, tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--label", "Ill"), "t.csv has no column 'Ill'. Did you mean 'ill'?"),
        (("--label", " ill "), "t.csv has no column ' ill '. Did you mean 'ill'?"),
        (("--domain", "SITE"), "t.csv has no column 'SITE'. Did you mean 'site'?"),
        (("--ignore", "Marker"), "t.csv has no column 'Marker'. Did you mean 'marker'?"),
    ],
)
def test_a_column_that_differs_by_case_or_spaces_is_suggested(tmp_path, words, sentence):
    assert sentence in refused(fit(make_patients(), tmp_path, *words))


def test_a_column_to_predict_from_that_differs_by_case_is_suggested(model, tmp_path):
    said = refused(predict(model, make_patients().rename(columns={"age": "AGE"}), tmp_path))
    assert (
        "new.csv has no column 'age': the model was trained with it and needs it. Did you mean 'AGE' for 'age'?" in said
    )
    said = refused(predict(model, make_patients().rename(columns={"age": "AGE", "marker": "markers"}), tmp_path))
    assert "new.csv has no columns 'age', 'marker': the model was trained with them and needs them all." in said
    assert "Did you mean 'AGE' for 'age', 'markers' for 'marker'? new.csv has: AGE, markers, site." in said


def test_a_table_without_a_column_of_domains_is_refused(tmp_path):
    make_patients().to_csv(tmp_path / "t.csv", index=False)
    said = refused(seqdg("fit", tmp_path / "t.csv", "--label", "ill", *QUICK, "--out", tmp_path / "m"))
    assert "Which column says where a row is from, such as the hospital or the device? Give it with --domain." in said


def test_a_domain_for_every_row_is_refused_with_advice(tmp_path):
    frame = make_patients().assign(patient=[f"p{i}" for i in range(60)])
    said = refused(fit(frame, tmp_path, domain="patient"))
    assert "Column 'patient' has 60 different domains in 60 rows" in said
    assert "such as the hospital" in said


def test_ages_are_no_labels(tmp_path):
    frame = make_patients(120)
    said = refused(fit(frame, tmp_path, label="age"))
    assert f"Column 'age' has {frame['age'].nunique()} different whole numbers in 120 rows" in said
    assert "--task number for regression, or --task class" in said
    assert frame["age"].nunique() > 20


def test_a_bare_list_counts_what_there_is_to_list():
    done = seqdg("list")
    assert done.returncode == 0, done.stderr
    for kind in ("algorithms", "wrappers", "benchmarks", "datasets"):
        line = next(line for line in done.stdout.splitlines() if f"seqdg list {kind}" in line)
        assert any(word.isdigit() for word in line.split())


def test_the_shell_can_complete_commands():
    assert "--install-completion" in seqdg("--help").stdout


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_question_marks_are_gaps_and_what_was_decided_is_said(tmp_path):
    frame = make_patients().astype({"age": object})
    frame.loc[[3, 7, 9], "age"] = "?"
    frame["ward"] = ["icu", "er", None] * 20
    frame["admitted"] = pd.date_range("2020-01-30", periods=60).strftime("%d.%m.%Y")
    done = fit(frame, tmp_path)
    assert done.returncode == 0, done.stderr
    said = (
        "columns: age: numbers, 3 missing ('?'); marker: numbers; ward: 2 categories, 20 missing; admitted: dates "
        "(day/month/year) -> year, month, day, weekday, hour\n"
    )
    assert said in done.stderr
    card = (tmp_path / "m/card.md").read_text()
    assert (
        "Columns: age (numbers, 3 missing ('?')), marker (numbers), ward (2 categories, 20 missing), admitted (dates"
        in card
    )
    assert "from 2 numeric, 1 date and 1 categorical columns" in card
    done = predict(tmp_path / "m", frame, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "admitted" not in done.stderr


def test_a_stray_word_is_refused_until_the_user_decides(tmp_path):
    frame = make_patients().astype({"age": object})
    frame.loc[4, "age"] = "old"
    said = refused(fit(frame, tmp_path))
    assert "Column 'age' holds mostly numbers, but line 6 holds 'old'." in said
    assert "--na 'old'" in said
    assert "--types 'age=category'" in said
    assert "age: numbers, 1 missing" in fit(frame, tmp_path, "--na", "old").stderr
    done = predict(tmp_path / "m", frame, tmp_path)
    assert done.returncode == 0, done.stderr  # the model remembers
    assert "age: 27 categories" in fit(frame, tmp_path, "--types", "age=words").stderr
    assert "age" not in fit(frame, tmp_path, "--types", "age=ignore").stderr
    assert "t.csv has no column 'Age'. Did you mean 'age'?" in refused(fit(frame, tmp_path, "--types", "Age=words"))


def test_numbers_that_mean_a_missing_value_are_named(tmp_path):
    frame = make_patients()
    frame.loc[:9, "age"] = -999
    done = fit(frame, tmp_path, "--na", "-999")
    assert done.returncode == 0, done.stderr
    assert "age: numbers, 10 missing" in done.stderr
    predict(tmp_path / "m", frame, tmp_path)
    with_sign = (tmp_path / "p.csv").read_text()
    predict(tmp_path / "m", frame.replace(-999, np.nan), tmp_path)
    assert (tmp_path / "p.csv").read_text() == with_sign


def test_words_with_leading_zeros_stay_as_they_are_written(tmp_path):
    frame = make_patients().assign(code=["007", "07", "7"] * 20)
    done = fit(frame, tmp_path, "--types", "code=words")
    assert "code: 3 categories" in done.stderr
    assert "not in the training data" not in predict(tmp_path / "m", frame, tmp_path).stderr


def test_whole_numbers_are_labels_where_the_user_says_so(tmp_path):
    frame = make_patients(120)
    done = fit(frame, tmp_path, "--types", "age=words", label="age")
    assert done.returncode == 0, done.stderr
    assert predict(tmp_path / "m", frame, tmp_path).stdout.startswith("Accuracy on 120 labelled rows")


def test_identifiers_are_no_features_and_stand_beside_the_predictions(tmp_path):
    frame = make_patients().assign(patient=[f"{i:03d}" for i in range(60)], visit=range(60))
    done = fit(frame, tmp_path, "--id", "patient")
    assert done.returncode == 0, done.stderr
    assert "Column 'visit' numbers the rows: is it an identifier?" in done.stderr
    assert "patient" not in done.stderr
    assert predict(tmp_path / "m", frame, tmp_path).returncode == 0
    written = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert list(written.columns) == ["patient", "label", "p_no", "p_yes"]
    assert written["patient"].tolist() == frame["patient"].tolist()
    assert predict(tmp_path / "m", frame, tmp_path, "--id", "visit,patient,site").returncode == 0
    assert list(pd.read_csv(tmp_path / "p.csv").columns) == ["visit", "patient", "site", "label", "p_no", "p_yes"]
    done = predict(tmp_path / "m", frame.drop(columns="patient"), tmp_path)
    assert "note: new.csv has no column 'patient', which named the rows in training." in done.stderr
    assert "new.csv has no column 'Patient'. Did you mean" in refused(
        predict(tmp_path / "m", frame, tmp_path, "--id", "Patient")
    )
    said = refused(predict(tmp_path / "m", frame.assign(label=1), tmp_path, "--id", "label"))
    assert "The predictions have a column 'label' of their own" in said


def test_large_identifiers_of_a_parquet_file_keep_all_digits(model, tmp_path):
    frame = make_patients().assign(id=np.arange(60) + 2**60)
    frame.to_parquet(tmp_path / "new.parquet")
    words = ["predict", model, tmp_path / "new.parquet", "--id", "id", "--out"]
    for name, read in (("p.csv", pd.read_csv), ("p.parquet", pd.read_parquet)):
        assert seqdg(*words, tmp_path / name).returncode == 0
        assert read(tmp_path / name)["id"].tolist() == frame["id"].tolist()


def test_check_shows_what_is_read_of_a_table(tmp_path):
    path = write(tmp_path / "t.csv", "age,ward,site,ill\n50,icu,a,yes\n?,er,a,no\n61,er,b,no\n")
    done = seqdg("check", path)
    assert done.stdout.splitlines() == [
        "t.csv: 3 rows, 4 columns",
        "  age   numbers, 1 missing ('?')",
        "  ward  2 categories",
        "  site  2 categories",
        "  ill   2 categories",
    ]
    done = seqdg("check", path, "--label", "ill", "--domain", "site")
    assert done.stdout.splitlines() == [
        "t.csv: 3 rows, 4 columns",
        "  age   numbers, 1 missing ('?')",
        "  ward  2 categories",
        "2 classes: no, yes",
        "  a: 2 rows (no 1, yes 1)",
        "  b: 1 row (no 1, yes 0)",
    ]
    assert "Did you mean 'ill'" in refused(seqdg("check", path, "--label", "Ill"))
    lacking = write(tmp_path / "u.csv", "age,site,ill\n50,,yes\n3,a,no\n61,b,no\n")
    said = refused(seqdg("check", lacking, "--label", "ill", "--domain", "site"))
    assert "There is no domain for 1 row (line 2)" in said
    assert "--label is for tables" in refused(seqdg("check", "agg", "--label", "ill"))


def test_how_much_there_is_to_train_is_said_before_it_begins(tmp_path):
    make_patients().to_csv(tmp_path / "t.csv", index=False)
    words = ["fit", tmp_path / "t.csv", "--label", "ill", "--domain", "site", *QUICK[:-1], "--out", tmp_path / "m"]
    done = seqdg(*words)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+ trainings, each domain held out in turn\.$", done.stderr, re.MULTILINE)


def test_the_type_of_a_label_or_domain_can_only_be_one_that_names_something(tmp_path):
    said = "'ill' is given as --label, so that its type can only be: category, number."
    assert said in refused(fit(make_patients(), tmp_path, "--types", "ill=ignore"))
    assert "'site' is given as --domain" in refused(fit(make_patients(), tmp_path, "--types", "site=date"))


def test_what_a_file_holds_cannot_act_on_the_terminal(tmp_path):
    write(tmp_path / "t.csv", "a\x1b[31m,b\n1,2\n")
    said = refused(seqdg("fit", tmp_path / "t.csv", "--label", "y", "--domain", "b", *QUICK, "--out", tmp_path / "m"))
    assert "Choose from: a\\x1b[31m, b." in said


def test_a_check_of_a_table_notes_columns_that_are_no_features(tmp_path):
    table = make_patients().assign(patient=[f"P{i}" for i in range(60)], row=range(60))
    table.to_csv(tmp_path / "t.csv", index=False)
    words = ["check", tmp_path / "t.csv", "--label", "ill", "--domain", "site"]
    said = seqdg(*words).stdout
    assert "note: Column 'patient' has 60 different categories in 60 rows: is it an identifier?" in said
    assert "note: Column 'row' numbers the rows: is it an identifier?" in said
    assert "note:" not in seqdg(*words, "--id", "patient", "--ignore", "row").stdout


def test_whole_numbers_that_are_another_in_every_row_are_noted_and_measurements_are_not(tmp_path):
    draw, patients = np.random.default_rng(0), make_patients(90)
    patients["file"] = draw.permutation(90) + 1000
    patients["patientNr"] = draw.choice(10**6, 90, replace=False)
    for site in "abc":  # which numbers its own patients
        patients.loc[patients["site"] == site, "visit"] = draw.permutation(30)
    patients["platelets"] = draw.choice(10**6, 90, replace=False)  # as well a measurement
    patients["steps"] = np.round(draw.normal(9000, 500, 90))
    patients.to_csv(tmp_path / "t.csv", index=False)
    words = ["check", tmp_path / "t.csv", "--label", "ill", "--domain", "site"]
    said = seqdg(*words).stdout
    asked = r"'(\w+)' has another whole number in every row( of a domain)?: is it an identifier\?.* --id (\w+), which"
    assert re.findall(asked, said) == [
        ("file", "", "file"), ("patientNr", "", "patientNr"), ("visit", " of a domain", "visit"),
    ]  # fmt: skip
    assert "note:" not in seqdg(*words, "--id", "file,patientNr,visit").stdout


def test_many_classes_that_some_domains_lack_are_one_note(tmp_path):
    kinds = [f"k{i % 30 // 3}" if i % 3 else f"only{i % 9}" for i in range(60)]
    said = fit(make_patients().assign(ill=kinds), tmp_path).stderr
    assert "classes are missing from some domains: " in said
    assert "The class " not in said


def test_a_fit_notes_identifiers_once_and_before_it_trains(tmp_path):
    said = fit(make_patients().assign(patient=[f"P{i}" for i in range(60)]), tmp_path).stderr
    assert said.count("note: Column 'patient' has 60 different categories in 60 rows: is it an identifier?") == 1
    assert said.index("note: Column 'patient'") < said.index("The model is in")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_and_domains_of_many_digits_stay_apart(tmp_path, kind):
    patients = make_patients()
    patients["ill"] = 9007199254740992 + (patients["ill"] == "yes")  # one apart, and the same as floats
    patients["site"] = 10**17 + patients["site"].map({"a": 1, "b": 2, "c": 3})
    table = tmp_path / f"t.{kind}"
    patients.to_csv(table, index=False) if kind == "csv" else patients.to_parquet(table)
    words = [table, "--label", "ill", "--domain", "site"]
    shown = seqdg("check", *words).stdout
    assert "2 classes: 9007199254740992, 9007199254740993\n" in shown
    assert [line.split(":")[0] for line in shown.splitlines()[-3:]] == [f"  {10**17 + i}" for i in (1, 2, 3)]
    assert seqdg("fit", *words, *QUICK, "--out", tmp_path / "m").returncode == 0
    done = seqdg("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv")
    assert "Accuracy on 60 labelled rows" in done.stdout + done.stderr
    right = (pd.read_csv(tmp_path / "p.csv")["label"] == patients["ill"]).mean()
    assert f": {100 * right:.1f} %" in done.stdout + done.stderr


def test_codes_with_leading_zeros_are_predicted_as_they_are_written(tmp_path):
    patients = make_patients()
    patients["ill"] = patients["ill"].map({"yes": "007", "no": "013"})
    patients["site"] = patients["site"].map({"a": "01", "b": "1", "c": "2"})
    assert fit(patients, tmp_path).returncode == 0
    assert "Accuracy on 60 labelled rows" in (done := predict(tmp_path / "m", patients, tmp_path)).stdout + done.stderr
    assert set(pd.read_csv(tmp_path / "p.csv", dtype=str)["label"]) <= {"007", "013"}
    assert "| 01 | 20 |" in seqdg("show", tmp_path / "m").stdout


def test_labels_and_domains_that_differ_by_case_alone_are_noted(tmp_path):
    patients = make_patients()
    patients.loc[:9, "ill"] = patients.loc[:9, "ill"].str.title()
    patients["site"] = patients["site"].replace("c", "a ")
    labels = "note: Names that differ by case, spaces or leading zeros alone: 'No' and 'no', 'Yes' and 'yes'."
    domains = "note: Names that differ by case, spaces or leading zeros alone: 'a' and 'a '."
    done = fit(patients, tmp_path)
    assert labels in done.stderr + done.stdout
    assert domains in done.stderr + done.stdout
    shown = seqdg("check", tmp_path / "t.csv", "--label", "ill", "--domain", "site").stdout
    assert labels in shown
    assert domains in shown
    assert "Names that differ" not in fit(make_patients(), tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["NA"], "The label 'NA' counts as a class."),
        (["none"], "The label 'none' counts as a class."),
        (["?", "NA"], "The labels '?' and 'NA' count as classes."),
    ],
)
def test_labels_that_may_stand_for_none_are_noted_with_what_to_type(tmp_path, words, what):
    patients, typed = make_patients(), ",".join(words)
    for i, word in enumerate(words):
        patients.loc[i::7, "ill"] = word
    done = fit(patients, tmp_path)
    assert (done.stdout + done.stderr).count(f"note: {what}") == 1
    assert done.stderr.index(what) < done.stderr.index("The model is in")
    check = ["check", tmp_path / "t.csv", "--label", "ill", "--domain", "site"]
    assert re.search(rf"note: {re.escape(what)}.* --na '{re.escape(typed)}' --drop-unlabeled\.", seqdg(*check).stdout)
    after = seqdg(*check, "--na", typed, "--drop-unlabeled").stdout
    assert "2 classes: no, yes" in after
    assert "note:" not in after
    assert "note:" not in fit(make_patients(), tmp_path).stderr


def test_a_column_that_names_the_domain_is_noted_once(tmp_path):
    patients = make_patients()
    patients["town"] = patients["site"].map({"a": "Oslo", "b": "Bonn", "c": "Lyon"})
    patients["beds"] = patients["site"].map({"a": 100, "b": 250, "c": 900})
    patients["floors"] = patients["site"].map({"a": 2, "b": 2, "c": 4})  # two have the same
    done = fit(patients, tmp_path)
    shown = seqdg("check", tmp_path / "t.csv", "--label", "ill", "--domain", "site").stdout
    for text in (done.stdout + done.stderr, shown):
        assert re.findall(r"Column '(\w+)' has one value in each domain", text) == ["town", "beds"]
