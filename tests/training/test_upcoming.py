"""What a stack of trials sees, drawn ahead, is what each trial draws by itself."""

from __future__ import annotations

import pytest
import torch

from seqdg.training.sampler import Sampler, Upcoming

ROWS = [torch.arange(10), torch.arange(20, 27), torch.arange(40, 73)]
OTHER = [torch.arange(100, 110), torch.arange(120, 127), torch.arange(140, 173)]


def samplers():
    """Of four trials, of which the first and the last differ in their settings alone."""
    return [Sampler(3, ROWS, 4), Sampler(4, ROWS, 4), Sampler(3, OTHER, 4), Sampler(3, ROWS, 4)]


@pytest.mark.parametrize(
    "stretches", [[(0, 9), (9, 20)], [(0, 3), (3, 4), (4, 30)], [(5, 9), (0, 2), (20, 31), (25, 28)]]
)
def test_any_stretches_are_those_of_the_trials(stretches):
    upcoming, whole = Upcoming(samplers()), [sampler.draw(0, 40) for sampler in samplers()]
    for start, stop in stretches:
        for field, got in zip(whole[0]._fields, upcoming.take(start, stop), strict=True):
            assert torch.equal(got, torch.stack([getattr(draws, field)[start:stop] for draws in whole], 1))


def test_what_is_prepared_is_not_drawn_again():
    upcoming = Upcoming(samplers())
    upcoming.prepare(0, 8)
    upcoming.take(0, 4)
    upcoming.prepare(4, 12)
    want = [sampler.draw(4, 12).rows for sampler in samplers()]
    for sampler in upcoming.samplers:
        sampler.draw = None  # type: ignore[assignment, method-assign]
    assert torch.equal(upcoming.take(4, 12).rows, torch.stack(want, 1))


def test_trials_that_differ_in_settings_alone_are_drawn_once():
    drawn = []

    class Counted(Sampler):
        def draw(self, start, stop):
            drawn.append(self.seed)
            return super().draw(start, stop)

    Upcoming([Counted(s.seed, [torch.as_tensor(r) for r in s.rows], 4) for s in samplers()]).take(0, 3)
    assert drawn == [3, 4, 3]
