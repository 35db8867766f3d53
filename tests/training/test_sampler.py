from __future__ import annotations

import numpy as np
import pytest
import torch

from seqdg.training.sampler import Sampler, make_generator, make_stream

ROWS = [torch.arange(0, 10), torch.arange(10, 17), torch.arange(17, 20)]


def test_any_stretch_of_steps_is_the_same_as_in_one_go():
    whole = Sampler(3, ROWS, batch=4).draw(0, 20)
    part = Sampler(3, ROWS, batch=4).draw(7, 13)
    for all_of_it, some in zip(whole, part, strict=True):
        assert torch.equal(all_of_it[7:13], some)


def test_one_sampler_may_be_asked_for_stretches_in_any_order():
    whole, same = Sampler(3, ROWS, batch=4).draw(0, 60), Sampler(3, ROWS, batch=4)
    for start, stop in [(0, 7), (7, 13), (20, 31), (31, 60), (5, 9), (9, 9 + 1), (0, 60)]:
        for got, want in zip(same.draw(start, stop), whole, strict=True):
            assert torch.equal(got, want[start:stop])


def test_rows_come_in_the_order_of_the_path_and_from_its_domains():
    draws = Sampler(0, ROWS, batch=4).draw(0, 50)
    assert all(sorted(path.tolist()) == [0, 1, 2] for path in draws.domain)
    for path, rows in zip(draws.domain, draws.rows, strict=True):
        for source, drawn in zip(path.tolist(), rows, strict=True):
            assert set(drawn.tolist()) <= set(ROWS[source].tolist())


def test_a_domain_is_drawn_in_epochs_that_wrap_also_where_it_is_smaller_than_a_minibatch():
    draws = Sampler(0, ROWS, batch=4).draw(0, 30)
    for source, rows in enumerate(ROWS):
        drawn = torch.cat([r[p == source].flatten() for p, r in zip(draws.domain, draws.rows, strict=True)])
        for epoch in drawn[: len(drawn) // len(rows) * len(rows)].reshape(-1, len(rows)):
            assert sorted(epoch.tolist()) == rows.tolist()
    epochs = drawn[:30].reshape(-1, 3)
    assert len({tuple(e.tolist()) for e in epochs}) > 1


def test_every_path_is_met_equally_often():
    paths = Sampler(1, ROWS, batch=1).draw(0, 6000).domain
    _, counts = np.unique(paths.numpy(), axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 120


def test_seeds_and_purposes_draw_different_numbers():
    a, b = Sampler(0, ROWS, 4).draw(0, 5), Sampler(1, ROWS, 4).draw(0, 5)
    assert not torch.equal(a.domain, b.domain)
    assert not torch.equal(a.key, b.key)
    assert make_stream(0, "order").random() != make_stream(0, "key").random()
    first, again = make_generator(5, "net"), make_generator(5, "net")
    assert torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=again))


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_minibatch_has_the_size_that_was_asked_for(batch):
    assert Sampler(0, ROWS, batch).draw(2, 6).rows.shape == (4, 3, batch)
