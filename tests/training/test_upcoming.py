"""What a stack of trials sees, drawn ahead, is what each trial draws by itself."""

from __future__ import annotations

import pytest
import torch

from seqdg.training.sampler import Sampler, Upcoming

ROWS = [torch.arange(10), torch.arange(20, 27), torch.arange(40, 73)]
OTHER = [torch.arange(100, 110), torch.arange(120, 122), torch.arange(140, 173)]
SEEDS, SPLITS = (3, 4, 3, 3), (ROWS, ROWS, OTHER, ROWS)  # of four trials: the first and the last see the same


def make_sampler():
    return Sampler(SEEDS, SPLITS, 4)


@pytest.mark.parametrize(
    "stretches", [[(0, 9), (9, 20)], [(0, 3), (3, 4), (4, 300)], [(5, 9), (0, 2), (20, 31), (25, 28)]]
)
def test_any_stretches_are_those_of_the_trials(stretches):
    upcoming = Upcoming(make_sampler())
    alone = [Sampler([seed], [rows], 4).draw(0, 300) for seed, rows in zip(SEEDS, SPLITS, strict=True)]
    for start, stop in stretches:
        for field, got in zip(alone[0]._fields, upcoming.take(start, stop), strict=True):
            assert torch.equal(got, torch.cat([getattr(draws, field)[start:stop] for draws in alone], 1))


def test_what_is_drawn_ahead_is_not_drawn_again():
    upcoming = Upcoming(make_sampler())
    want = make_sampler().draw(4, 12).rows
    upcoming.take(0, 4)
    upcoming.sampler.draw = None  # type: ignore[assignment, method-assign]
    upcoming.prepare(4, 12)
    assert torch.equal(upcoming.take(4, 12).rows, want)


def test_trials_that_differ_in_settings_alone_are_drawn_once_and_equal_rows_are_held_once():
    sampler = make_sampler()
    assert len(sampler._first_source) == 3  # trials that see something of their own
    assert len(sampler._table) == 10 + 7 + 33 + 10 + 2 + 33
    drawn = sampler.draw(0, 5)
    assert torch.equal(drawn.rows[:, 0], drawn.rows[:, 3])
    assert not torch.equal(drawn.rows[:, 0], drawn.rows[:, 1])
