"""Names of others become files of one folder, and what memory cannot hold is refused before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqdg.base import UsageError, check_memory, make_file_name, read_toml, refuse_broken, system

NAMES = [
    "../../climbed",
    "/etc/passwd",
    "..",
    "",
    ".",
    "a/b",
    "C:\\x",
    "a\0b",
    "\udce9",
    "x" * 5000,
    "é" * 300,
    "~root",
    "a\nb",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_becomes_the_name_of_one_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{make_file_name(name)}.safetensors"
    path.write_text("x")
    assert list(tmp_path.iterdir()) == [path]


def test_names_that_are_fine_stay_as_they_are_and_long_ones_stay_apart() -> None:
    assert make_file_name("fo-s-mldg+ema_0.5") == "fo-s-mldg+ema_0.5"
    assert make_file_name("Łódź 5 %", "-_.% ") == "Łódź 5 %"
    assert make_file_name("x" * 500 + "a") != make_file_name("x" * 500 + "b")


def test_what_no_memory_holds_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "measure_free_memory", lambda: 2**30)
    check_memory(2**29, "A table")
    with pytest.raises(UsageError, match=r"A table needs at least 4.0 GiB of memory, and 80% of the 1.0 GiB that are"):
        check_memory(2**32, "A table")
    monkeypatch.setattr(system, "measure_free_memory", lambda: None)
    check_memory(2**60, "A table")  # where nobody knows how much there is


def test_a_parser_of_others_may_raise_anything() -> None:
    with (
        pytest.raises(UsageError, match=r"^x is broken \(a b\): is it whole\?$"),
        refuse_broken("x is broken", ": is it whole?"),
    ):
        raise ZeroDivisionError("a b\nc")
    with pytest.raises(UsageError, match=r"^as it is$"), refuse_broken("x is broken"):
        raise UsageError("as it is")


@pytest.mark.parametrize(
    "content",
    [b"x = '\xff'", b"x = " + b"[" * 5000, b"x = " + b"9" * 5000, b"x = 1", b"x = [{a = -18446744073709551616}]"],
)
def test_toml_that_nobody_writes_is_no_valid_toml(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    if content == b"x = 1":
        assert read_toml(path) == {"x": 1}
        return
    with pytest.raises(UsageError, match=r"x\.toml is not valid TOML: .{9}"):
        read_toml(path)
