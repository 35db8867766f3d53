from __future__ import annotations

import numpy as np
import pytest
import torch

from seqdg.training import Sampler, make_generator, make_stream

ROWS = [torch.arange(0, 10), torch.arange(10, 17), torch.arange(17, 20)]
MANY = [torch.arange(10 * i, 10 * i + 3 + i % 7) for i in range(35)]


def draw(seed, rows, batch, start, stop, domains=0):
    """What one trial sees, without an axis of trials."""
    return [d[:, 0] for d in Sampler([seed], [rows], batch, domains).draw(start, stop)]


@pytest.mark.parametrize(("rows", "domains"), [(ROWS, 0), (ROWS, 2), (MANY, 6)])
def test_any_stretch_of_steps_is_the_same_as_in_one_go(rows, domains):
    whole, part = draw(3, rows, 4, 0, 20, domains), draw(3, rows, 4, 7, 13, domains)
    for all_of_it, some in zip(whole, part, strict=True):
        assert torch.equal(all_of_it[7:13], some)


def test_one_sampler_may_be_asked_for_stretches_in_any_order():
    whole, same = Sampler([3], [ROWS], 4).draw(0, 60), Sampler([3], [ROWS], 4)
    for start, stop in [(0, 7), (7, 13), (20, 31), (31, 60), (5, 9), (9, 9), (9, 10), (0, 60)]:
        for got, want in zip(same.draw(start, stop), whole, strict=True):
            assert torch.equal(got, want[start:stop])


def test_draws_do_not_depend_on_how_many_are_computed_at_once(monkeypatch):
    whole = Sampler([3, 4], [ROWS, ROWS], 4).draw(0, 20)
    monkeypatch.setattr("seqdg.training.sampler.BLOCK", {"cpu": 100})
    for got, want in zip(Sampler([3, 4], [ROWS, ROWS], 4).draw(0, 20), whole, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(("rows", "domains"), [(ROWS, 0), (MANY, 6)])
def test_rows_come_in_the_order_of_the_path_and_from_its_domains(rows, domains):
    paths, drawn, _ = draw(0, rows, 4, 0, 50, domains)
    for path, of_step in zip(paths, drawn, strict=True):
        for source, numbers in zip(path.tolist(), of_step, strict=True):
            assert set(numbers.tolist()) <= set(rows[source].tolist())


@pytest.mark.parametrize(("rows", "domains"), [(ROWS, 0), (MANY, 6)])
def test_a_fixed_path_meets_the_same_domains_and_rows_in_the_order_of_the_data_set(rows, domains):
    paths, drawn, keys = draw(3, rows, 4, 0, 40, domains)
    sampler = Sampler([3], [rows], 4, domains, path="fixed")
    fixed_paths, fixed_rows, fixed_keys = (d[:, 0] for d in sampler.draw(0, 40))
    order = paths.argsort(1)
    assert torch.equal(fixed_paths, paths.gather(1, order))
    assert not torch.equal(fixed_paths, paths)
    for got, of_step, place in zip(fixed_rows, drawn, order, strict=True):
        assert torch.equal(got, of_step[place])
    assert torch.equal(fixed_keys, keys)


def test_a_path_meets_every_source_once():
    assert all(sorted(path.tolist()) == [0, 1, 2] for path in draw(0, ROWS, 4, 0, 50)[0])


def test_a_domain_is_drawn_in_epochs_that_wrap_also_where_it_is_smaller_than_a_minibatch():
    paths, drawn, _ = draw(0, ROWS, 4, 0, 30)
    for source, rows in enumerate(ROWS):
        met = torch.cat([r[p == source].flatten() for p, r in zip(paths, drawn, strict=True)])
        for epoch in met[: len(met) // len(rows) * len(rows)].reshape(-1, len(rows)):
            assert sorted(epoch.tolist()) == rows.tolist()
    epochs = met[:30].reshape(-1, 3)
    assert len({tuple(e.tolist()) for e in epochs}) > 1


def test_every_path_is_met_equally_often():
    paths = draw(1, ROWS, 1, 0, 6000)[0]
    _, counts = np.unique(paths.numpy(), axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 120


def test_seeds_purposes_and_sources_draw_different_numbers():
    a, b = draw(0, ROWS, 4, 0, 5), draw(1, ROWS, 4, 0, 5)
    assert not torch.equal(a[0], b[0])
    assert not torch.equal(a[2], b[2])
    assert len(set(a[2].tolist())) == 5
    _, drawn, _ = draw(0, [torch.arange(50)] * 2, 50, 0, 1)  # two sources with equal rows
    assert not torch.equal(drawn[0, 0], drawn[0, 1])
    assert make_stream(0, "order").random() != make_stream(0, "key").random()
    first, again = make_generator(5, "net"), make_generator(5, "net")
    assert torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=again))


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_minibatch_has_the_size_that_was_asked_for(batch):
    assert draw(0, ROWS, batch, 2, 6)[1].shape == (4, 3, batch)


def test_what_a_seed_draws_is_the_same_on_every_machine():
    domain, rows, key = draw(5, ROWS, 3, 1000, 1002)
    assert domain.tolist() == [[0, 2, 1], [2, 1, 0]]
    assert rows.tolist() == [[[1, 3, 0], [17, 19, 18], [16, 13, 12]], [[19, 18, 17], [14, 13, 16], [8, 7, 5]]]
    assert key.tolist() == [814650522411387319, 4364929200313632812]


def test_some_of_many_domains_are_met_once_in_a_round_and_equally_often():
    paths = draw(2, MANY, 1, 0, 5000, domains=6)[0]
    for met in paths.reshape(1000, 5 * 6).tolist():  # 35 // 6 steps
        assert len(set(met)) == 30
    counts = torch.bincount(paths.flatten(), minlength=35)
    assert abs(counts - 30_000 / 35).max() < 60
    places = torch.bincount(paths[:, 0], minlength=35)
    assert abs(places - 5000 / 35).max() < 60


def test_pairs_of_domains_meet_equally_often():
    paths = draw(2, ROWS, 1, 0, 6000, domains=2)[0]
    _, counts = np.unique(paths.numpy(), axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 120


def test_a_domain_that_is_met_in_some_steps_only_is_drawn_in_epochs_too():
    rows = [torch.arange(6 * i, 6 * i + 6) for i in range(4)]
    paths, drawn, _ = draw(0, rows, 4, 0, 24, domains=2)
    for source in range(4):
        met = torch.cat([r[p == source].flatten() for p, r in zip(paths, drawn, strict=True)])
        for epoch in met.reshape(-1, 6):
            assert sorted(epoch.tolist()) == rows[source].tolist()
