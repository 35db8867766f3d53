"""An interrupt that closely follows another is part of it."""

from __future__ import annotations

import os
import signal

import pytest

from seqdg.base import heed_interrupts_once, hold_interrupts, interrupts


@pytest.fixture(autouse=True)
def long_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows closely here does so on a busy machine, too."""
    monkeypatch.setattr(interrupts, "MOMENT", 3600.0)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_of_interrupts_that_follow_closely_the_first_alone_is_heeded() -> None:
    before = signal.getsignal(signal.SIGINT)
    with heed_interrupts_once():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        interrupt()
        with heed_interrupts_once():
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_later_interrupt_is_heeded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "MOMENT", 0.0)
    with heed_interrupts_once():
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                interrupt()


def test_held_interrupts_are_noted_and_a_later_one_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with heed_interrupts_once(), hold_interrupts() as came:
        assert not came
        interrupt()
        interrupt()
        assert len(came) == 2
        monkeypatch.setattr(interrupts, "MOMENT", 0.0)
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_follows_a_held_one_is_part_of_it() -> None:
    with heed_interrupts_once():
        with hold_interrupts() as came:
            interrupt()
        assert came
        interrupt()


def test_a_program_that_handles_interrupts_goes_on_to_do_so() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with heed_interrupts_once(), hold_interrupts() as came:
            interrupt()
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT] * 2
    assert not came
