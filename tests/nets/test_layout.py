"""Which weights come before a point and which after it, and how many channels pass there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqdg.nets import Net, Point, alexnet, efficientnet_lite0, mlp, resnet18
from seqdg.nets.backbones import convnet

torch.manual_seed(0)  # a small net of other first weights may have no living unit
NETS = {
    "resnet18": (resnet18(5), (3, 32, 32)),
    "alexnet": (alexnet(5), (3, 63, 63)),
    "efficientnet-lite0": (efficientnet_lite0(5), (3, 32, 32)),
    "convnet": (convnet((256,), 5), (256,)),
    "mlp": (mlp(7, (6, 5), 5), (7,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_what_comes_after_a_point_is_what_a_change_there_reaches(name):
    module, shape = NETS[name]
    net = Net(module, "frozen" if any(isinstance(m, nn.BatchNorm2d) for m in module.modules()) else "none")
    x = torch.randn((2, *shape), generator=torch.Generator().manual_seed(0))
    assert net.points
    for point in net.points:
        seen = {}
        cut = net.with_points({point: lambda h, seen=seen: seen.setdefault("h", h.detach())})  # no gradient goes below
        gradient = torch.func.grad(lambda w, cut=cut: cut(w, x).square().sum())(net.params())
        reached = {n for n, g in gradient.items() if g.abs().max() > 0}
        after = set(net.list_names_after(point))
        assert reached <= after, point
        assert len(after) > 0, point
        below = set(net.names) - after
        whole = torch.func.grad(lambda w: net(w, x).square().sum())(net.params())
        assert all(float(gradient[n].abs().max()) == 0 for n in below), point
        assert any(float(whole[n].abs().max()) > 0 for n in below), point
        assert seen["h"].shape[1] == net.count_channels(point), point


def test_a_net_that_cannot_be_traced_is_read_in_the_order_of_its_layers():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.after1, self.last = nn.Linear(4, 3), Point("after1"), nn.Linear(3, 2)

        def forward(self, x):
            h = self.after1(self.first(x))
            return self.last(h) if h.sum() > 0 else self.last(-h)

    net = Net(Branching(), "none")
    assert net.list_names_after("after1") == ("last.weight", "last.bias")
    assert net.count_channels("after1") == 3
