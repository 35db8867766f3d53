from __future__ import annotations

import operator
from collections import Counter

import pytest
import torch
from torch import nn

from seqdg.nets import Net, efficientnet_lite0, resnet18
from seqdg.nets.batchnorm import PureBatchNorm, purify_batchnorm
from seqdg.nets.folding import fold_layers


def with_statistics(module):
    """Statistics and affine weights as after training, not the 0 and 1 of a fresh layer."""
    generator = torch.Generator().manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.copy_(torch.randn(layer.num_features, generator=generator))
            layer.running_var.copy_(torch.rand(layer.num_features, generator=generator) + 0.5)
            layer.weight.data = torch.rand(layer.num_features, generator=generator) + 0.5
            layer.bias.data = torch.randn(layer.num_features, generator=generator)
    return module.double().eval()


@pytest.mark.slow
@pytest.mark.parametrize("make", [resnet18, efficientnet_lite0])
def test_a_net_on_batch_statistics_is_the_module_in_training(make):
    module = with_statistics(make(5, dropout=0.0))
    net, x, y = Net(module, "recalibrate"), torch.randn(4, 3, 40, 40).double(), torch.tensor([1, 3, 0, 2])
    got = torch.func.grad(lambda w: net.criterion(net(w, x), y))(net.params())
    want = torch.autograd.grad(nn.functional.cross_entropy(module.train()(x), y), list(module.parameters()))
    for (name, _), gradient in zip(module.named_parameters(), want, strict=True):
        torch.testing.assert_close(got[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.slow
@pytest.mark.parametrize("make", [resnet18, efficientnet_lite0])
def test_a_folded_net_is_the_same_function_with_the_same_gradient_of_every_weight(make):
    module = with_statistics(make(5, dropout=0.0))
    net, x, y = Net(module, "frozen"), torch.randn(2, 3, 40, 40).double(), torch.tensor([1, 3])
    torch.testing.assert_close(net(net.params(), x), module(x))
    got = torch.func.grad(lambda w: net.criterion(net(w, x), y))(net.params())
    want = torch.autograd.grad(nn.functional.cross_entropy(module(x), y), list(module.parameters()))
    assert list(got) == [name for name, _ in module.named_parameters()]
    for (name, _), gradient in zip(module.named_parameters(), want, strict=True):
        torch.testing.assert_close(got[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


def operations(module):
    """How often each layer or function is called, not counting the picks from a list."""
    nodes = [node for node in module.graph.nodes if node.target is not operator.getitem]
    return Counter(str(node.target) if node.op == "call_module" else node.op for node in nodes)


def test_all_that_follows_a_convolution_goes_with_it():
    frozen = operations(fold_layers(purify_batchnorm(resnet18(3), on_batch=False)))
    assert sum(frozen[name] for name in frozen if "bn" in name or "conv" in name or "downsample" in name) == 0
    # All weights made ready, convolutions, the mean over the image; and the pool, where it does not go with the first.
    assert frozen["call_function"] == 1 + 20 + 1
    training = fold_layers(purify_batchnorm(resnet18(3), on_batch=True))
    assert operations(training)["call_function"] == 1 + 20 + 2
    assert sum(isinstance(layer, PureBatchNorm) for layer in training.modules()) == 20
    assert (
        operations(fold_layers(purify_batchnorm(efficientnet_lite0(3), on_batch=False)))["call_function"] == 1 + 49 + 1
    )


def test_a_convolution_with_a_bias_and_one_that_is_used_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
            self.b, self.other, self.head = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Linear(4, 2)

        def forward(self, x):
            x = self.norm(self.a(x))
            y = self.b(x)
            return self.head((self.other(y) + y).mean((-2, -1)))

    module = with_statistics(Twice())
    x = torch.randn(3, 2, 6, 6).double()
    torch.testing.assert_close(Net(module, "frozen")(dict(module.named_parameters()), x), module(x))


def test_a_module_that_depends_on_values_runs_unfold_layers():
    class Wilful(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Linear(2, 2)

        def forward(self, x):
            x = self.norm(self.conv(x))
            return self.head(x.mean((-2, -1)) if x.shape[0] > int(x.shape[1]) - 9 else x[:, :, 0, 0])

    module = with_statistics(Wilful())
    x = torch.randn(3, 1, 2, 2).double()
    torch.testing.assert_close(Net(module, "frozen")(dict(module.named_parameters()), x), module(x))


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_tied_weights_stay_tied(policy):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 3, bias=False), nn.Conv2d(3, 3, 3, bias=False)
            self.b.weight = self.a.weight
            self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.norm(self.b(self.a(x))).mean((-2, -1)))

    module = with_statistics(Tied())
    module.train(policy == "recalibrate")
    net, x = Net(module, policy), torch.randn(3, 3, 6, 6).double()
    params = {name: p + 0.1 for name, p in net.params().items()}
    assert "b.weight" not in params
    torch.testing.assert_close(net(params, x), torch.func.functional_call(module, params, (x,)))


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_paddings_by_name_are_those_of_torch(policy, padding):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=padding, dilation=2, bias=False), nn.BatchNorm2d(4)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.norm(self.conv(x)).square().mean((-2, -1)))

    module = with_statistics(Padded())
    module.train(policy == "recalibrate")
    x = torch.randn(3, 2, 9, 9).double()
    torch.testing.assert_close(Net(module, policy)(dict(module.named_parameters()), x), module(x))
