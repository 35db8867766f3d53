"""The small convolutional net of the bundled benchmark."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.testing import assert_close

from seqdg import Net, UsageError
from seqdg.bench import load_benchmark
from seqdg.nets import NetSpec, build_net
from seqdg.nets.backbones import convnet


def build(shape: tuple[int, ...], **settings) -> Net:
    return Net(build_net(NetSpec("convnet", **settings), shape, 10, torch.Generator().manual_seed(0)).module, "none")


def test_it_is_two_convolutions_a_hidden_layer_and_the_head():
    net, x = build((196,)), torch.rand(3, 196, generator=torch.Generator().manual_seed(1))
    w = net.params()
    h = F.relu(F.conv2d(x.reshape(3, 1, 14, 14), w["conv1.weight"], w["conv1.bias"], stride=2, padding=2))
    assert h.shape == (3, 8, 7, 7)
    h = F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1))
    assert h.shape == (3, 16, 4, 4)
    h = F.relu(h.flatten(1) @ w["linear.weight"].T + w["linear.bias"])
    assert_close(net(w, x), h @ w["head.weight"].T + w["head.bias"])
    assert sum(p.numel() for p in w.values()) == 18_474


def test_images_and_rows_of_their_pixels_are_the_same_to_it():
    flat, image = build((196,)), build((1, 14, 14))
    x = torch.rand(3, 196, generator=torch.Generator().manual_seed(1))
    assert torch.equal(flat(flat.params(), x), image(image.params(), x.reshape(3, 1, 14, 14)))
    assert build((3, 9, 13))(build((3, 9, 13)).params(), torch.rand(2, 3, 9, 13)).shape == (2, 10)


def test_its_points_are_feature_maps_and_its_gradients_in_a_stack_those_of_each():
    net, seen = build((196,), dropout=0.2), {}
    x, y = torch.rand(2, 4, 196, generator=torch.Generator().manual_seed(1)), torch.tensor([[1, 2, 3, 4]] * 2)
    assert net.points == ("after1", "after2")
    look = {p: lambda h, p=p: seen.setdefault(p, h) for p in net.points}
    net.with_points(look)(net.params(), x[0])
    assert [h.shape[1:] for h in seen.values()] == [(8, 7, 7), (16, 4, 4)]
    w, keys = {n: torch.stack([p, 1.1 * p]) for n, p in net.params().items()}, torch.tensor([3, 4])
    got = vmap(grad(net.loss))(w, (x, y, keys))
    for i in range(2):
        assert_close(
            {n: g[i] for n, g in got.items()}, grad(net.loss)({n: p[i] for n, p in w.items()}, (x[i], y[i], keys[i]))
        )


@pytest.mark.parametrize("shape", [(195,), (14, 14)])
def test_inputs_that_are_no_images_are_refused(shape):
    with pytest.raises(UsageError, match="convnet reads images"):
        convnet(shape, 10)


def test_there_are_no_pretrained_weights_and_no_widths_to_set():
    with pytest.raises(UsageError, match="no ImageNet weights of a convnet"):
        NetSpec("convnet", pretrained=True)
    with pytest.raises(UsageError, match="Only an mlp has 'hidden'"):
        NetSpec("convnet", hidden=(3,))


def test_the_bundled_benchmark_trains_it():
    benchmark = load_benchmark("rotated-mnist-conv")
    assert benchmark.net == NetSpec("convnet")
    task = benchmark.make_task()
    assert task.dataset().shape == (196,)
