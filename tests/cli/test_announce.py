"""What a fit says when it begins: how much there is to train, and how long it takes at the pace so far."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from seqdg.cli import terminal
from seqdg.cli.terminal import Announcement
from seqdg.data import Frame, LabeledRows


def make_announcement() -> Announcement:
    frame = Frame(("a",), (np.zeros(4),), named=True).decide_types()
    return Announcement(LabeledRows(frame, np.array([0, 1, 0, 1]), np.array(["10", "9", "9", "10"], dtype=object)))


def test_everything_is_said_once_and_before_the_training(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(terminal.time, "time", lambda: clock.now)
    shown: list[float] = []
    on_progress = make_announcement().wrap(lambda progress: shown.append(progress.share))
    for now, share in ((0, 0.0), (60, 0.0), (70, 0.01), (72, 0.02), (80, 0.06), (90, 0.12)):
        clock.now = now
        on_progress(SimpleNamespace(trials=1023, share=share))
    assert shown == [0.0, 0.0, 0.01, 0.02, 0.06, 0.12]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "4 rows; labels: 2 classes (0, 1); domains: 2 (9, 10)",
        "columns: a: numbers",
        "1023 trainings, each domain held out in turn.",
        "This takes about 3 min more; Ctrl-C stops it.",  # 0.05 of it took 10 s, and 0.94 are left: 188 s
    ]


def test_what_takes_a_moment_is_not_announced(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(terminal.time, "time", lambda: clock.now)
    on_progress = make_announcement().wrap(lambda progress: None)
    for now, share in ((0, 0.0), (1, 0.1), (7, 0.7)):
        clock.now = now
        on_progress(SimpleNamespace(trials=3, share=share))
    assert "This takes" not in capsys.readouterr().err


def test_what_is_known_as_the_training_goes_on_comes_after_what_was_decided(capsys):
    announcement = make_announcement()
    for sentence in ("Trying ridge: about 17 s.", "Trying agg: about 34 s."):
        announcement.add(sentence)
    announcement.say()
    assert capsys.readouterr().err.splitlines() == [
        "4 rows; labels: 2 classes (0, 1); domains: 2 (9, 10)",
        "columns: a: numbers",
        "Trying ridge: about 17 s.",
        "Trying agg: about 34 s.",
    ]
