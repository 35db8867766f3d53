"""Where numbers come from."""

from __future__ import annotations

from seqdg.training import device


def test_a_copy_without_its_history_has_the_commit_that_it_is_told(tmp_path, monkeypatch):
    package = tmp_path / "src" / "seqdg"
    package.mkdir(parents=True)
    monkeypatch.setattr(device, "PACKAGE", package)
    commit = device.find_commit.__wrapped__  # what it says is kept
    monkeypatch.delenv("SEQDG_COMMIT", raising=False)
    assert commit() == ""
    monkeypatch.setenv("SEQDG_COMMIT", "0123456789ab")
    assert commit() == "0123456789ab"


def test_what_a_checkout_is_told_wins_over_its_history(monkeypatch):
    monkeypatch.setenv("SEQDG_COMMIT", "0123456789ab")
    assert device.find_commit.__wrapped__() == "0123456789ab"
