from __future__ import annotations

import torch
from torch.func import vmap

from seqdg import Episode


def test_minibatches_and_parts_are_rows_in_the_order_of_the_path():
    x = torch.arange(24.0).reshape(4, 3, 2)
    y, domain = torch.arange(12).reshape(4, 3), torch.tensor([2, 0, 3, 1])
    episode = Episode(x, y, domain, torch.tensor(0.5), torch.tensor(9))
    assert episode.domains == 4
    for i in range(4):
        assert torch.equal(episode.minibatch(i)[0], x[i])
        assert torch.equal(episode.minibatch(i)[1], y[i])
    middle = episode.part(1, 3)
    assert torch.equal(middle.x, x[1:3])
    assert torch.equal(middle.y, y[1:3])
    assert middle.domain.tolist() == [0, 3]
    assert (middle.progress, middle.key) == (episode.progress, episode.key)


def test_a_stack_of_episodes_gives_the_rows_of_each():
    x = torch.arange(48.0).reshape(2, 4, 3, 2)
    y, domain = torch.arange(24).reshape(2, 4, 3), torch.arange(8).reshape(2, 4)
    stack = Episode(x, y, domain, torch.zeros(2), torch.zeros(2, dtype=torch.int64), torch.zeros(2))
    got, labels, keys = vmap(lambda e: e.part(1, 4).minibatch(2))(stack)
    assert torch.equal(got, x[:, 3])
    assert torch.equal(labels, y[:, 3])
    assert keys.shape == (2,)


def test_the_key_of_a_minibatch_is_that_of_its_source_wherever_it_is():
    x, y = torch.zeros(3, 2, 1), torch.zeros(3, 2)
    one = Episode(x, y, torch.tensor([2, 0, 1]), torch.zeros(()), torch.tensor(9))
    other = one._replace(domain=torch.tensor([0, 1, 2]))
    assert one.minibatch(0).key == other.minibatch(2).key == one.keys[0] == one.minibatches.key[0]
    assert len({int(k) for k in one.keys} | {9}) == 4
    assert one.minibatch(0).key != one._replace(key=torch.tensor(10)).minibatch(0).key
