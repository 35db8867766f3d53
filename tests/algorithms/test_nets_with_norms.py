"""S-MLDG and others that nest gradients, on networks with norms and attention: against both written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.testing import assert_close

from seqdg import Episode, Net, UsageError, build
from seqdg.algorithms._look_ahead import exact_by_products
from seqdg.nets import nesting
from seqdg.training.replay import record_at_first_call
from seqdg.training.step import compile_at_first_call

WIDE, HEADS, CLASSES, ROWS = 8, 2, 3, 5


def standardize(x, axes):
    apart = x - x.mean(axes, keepdim=True)
    return apart / (apart.pow(2).mean(axes, keepdim=True) + 1e-5).sqrt()


class LayerNormByHand(nn.LayerNorm):
    def forward(self, x):
        return standardize(x, -1) * self.weight + self.bias


class BatchNormByHand(nn.Module):
    """By a domain's statistics, with the weights of the stock layer."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return standardize(x.unflatten(0, (-1, ROWS)), 1).flatten(0, 1) * self.weight + self.bias


class Attention(nn.Module):
    """As timm writes it, or by hand."""

    def __init__(self, by_hand):
        super().__init__()
        self.by_hand, self.qkv, self.proj = by_hand, nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.by_hand:
            out = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).flatten(2))


class MultiheadByHand(nn.MultiheadAttention):
    """Self-attention by the weights of the stock layer."""

    def forward(self, x, *_, need_weights=False):
        qkv = x @ self.in_proj_weight.T + self.in_proj_bias
        q, k, v = qkv.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.out_proj(out.transpose(1, 2).flatten(2)), None


class Block(nn.Module):
    def __init__(self, multihead, by_hand):
        super().__init__()
        norm = LayerNormByHand if by_hand else nn.LayerNorm
        self.norm1, self.norm2 = norm(WIDE), norm(WIDE)
        kind = MultiheadByHand if by_hand else nn.MultiheadAttention
        self.attn = kind(WIDE, HEADS, batch_first=True) if multihead else Attention(by_hand)
        self.mlp = nn.Sequential(nn.Linear(WIDE, 2 * WIDE), nn.GELU(), nn.Linear(2 * WIDE, WIDE))

    def forward(self, x):
        h = self.norm1(x)
        h = self.attn(h, h, h, need_weights=False)[0] if isinstance(self.attn, nn.MultiheadAttention) else self.attn(h)
        x = x + h
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Images of 4 x 4 in patches of 2 x 2."""

    def __init__(self, by_hand, multihead=False):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDE, 2, 2)
        self.place = nn.Parameter(torch.zeros(1, 4, WIDE))
        self.blocks = nn.Sequential(*(Block(multihead, by_hand) for _ in range(2)))
        self.norm = (LayerNormByHand if by_hand else nn.LayerNorm)(WIDE)
        self.head = nn.Linear(WIDE, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


def mlp(by_hand):
    kind = BatchNormByHand if by_hand else nn.BatchNorm1d
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 10), kind(10), nn.ReLU(), nn.Linear(10, CLASSES))


def scaled(by_hand):
    """A net with weight norm, by torch or by hand."""

    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.parametrizations = nn.ModuleDict({"weight": nn.Module()})
            self.bias = nn.Parameter(torch.zeros(10))
            self.parametrizations["weight"].original0 = nn.Parameter(torch.zeros(10, 1))
            self.parametrizations["weight"].original1 = nn.Parameter(torch.zeros(10, 16))

        def forward(self, x):
            size, v = self.parametrizations["weight"].original0, self.parametrizations["weight"].original1
            return F.linear(x, size * v / v.pow(2).sum(1, keepdim=True).sqrt(), self.bias)

    layer = ByHand() if by_hand else weight_norm(nn.Linear(16, 10))
    return nn.Sequential(nn.Flatten(), layer, nn.Tanh(), nn.Linear(10, CLASSES))


NETS = {
    "ViT": (ViT, "none"),
    "ViT of multihead attention": (lambda by_hand: ViT(by_hand, multihead=True), "none"),
    "MLP with BatchNorm": (mlp, "recalibrate"),
    "MLP with BatchNorm as in torch": (mlp, "running"),
    "MLP with weight norm": (scaled, "none"),
}
SMALL_ALPHA, PAPER_ALPHA = 0.05, 0.9


@pytest.fixture(params=NETS)
def nets(request):
    """The net as torch has it, that by hand, and weights for both."""
    make, policy = NETS[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stock, by_hand = make(False).double(), make(True).double()
        weights = {name: p.detach() + 0.2 * torch.randn_like(p) for name, p in stock.named_parameters()}
    return Net(stock, policy), Net(by_hand, "none"), weights


def episode_of(domains):
    g = torch.Generator().manual_seed(domains)
    x = torch.randn((domains, ROWS, 1, 4, 4), generator=g, dtype=torch.float64)
    return Episode(
        x=x + 0.3 * torch.arange(domains).reshape(-1, 1, 1, 1, 1),
        y=torch.randint(CLASSES, (domains, ROWS), generator=g),
        domain=torch.arange(domains),
        progress=torch.tensor(0.5, dtype=torch.float64),
    )


def algorithm_1(module, weights, episode, alpha):
    """The gradient of Algorithm 1's loss, by nested torch.autograd.grad."""
    theta = {name: w.clone().requires_grad_() for name, w in weights.items()}

    def loss(at, i):
        return F.cross_entropy(functional_call(module, at, (episode.x[i],)), episode.y[i])

    total = loss(theta, 0)
    for i in range(1, episode.domains):
        step = torch.autograd.grad(total, list(theta.values()), create_graph=True)
        ahead = {name: w - alpha * d for (name, w), d in zip(theta.items(), step, strict=True)}
        total = total + loss(ahead, i)
    gradient = torch.autograd.grad(total, list(theta.values()))
    return dict(zip(theta, gradient, strict=True)), total.detach()


def assert_same(got, want):
    scale = max(float(w.abs().max()) for w in want.values())
    assert_close(got, want, rtol=1e-8, atol=1e-10 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("domains", [2, 3, 4])
@pytest.mark.parametrize("alpha", [SMALL_ALPHA, PAPER_ALPHA])
def test_s_mldg_is_algorithm_1_on_norms_by_hand(nets, domains, alpha):
    stock, by_hand, weights = nets
    episode = episode_of(domains)
    want, value = algorithm_1(by_hand._training, weights, episode, alpha)
    got, loss = build("s-mldg", alpha=alpha).gradient(stock, weights, episode)
    assert_same(got, want)
    assert_close(loss, value)


# Of a pass that is differentiated once: in a stack, torch takes it trial by trial.
slow_in_stacks = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.mark.slow
@slow_in_stacks
@pytest.mark.parametrize("domains", [3, 4])
def test_and_in_a_stack(nets, domains):
    stock, by_hand, weights = nets
    episode, places = episode_of(domains), [weights, {name: 1.1 * w for name, w in weights.items()}]
    stacked = {name: torch.stack([place[name] for place in places]) for name in weights}
    got, _ = vmap(lambda w: build("s-mldg", alpha=PAPER_ALPHA).gradient(stock, w, episode))(stacked)
    for i, place in enumerate(places):
        want, _ = algorithm_1(by_hand._training, place, episode, PAPER_ALPHA)
        assert_same({name: g[i] for name, g in got.items()}, want)


@pytest.mark.slow
@pytest.mark.parametrize("make", [record_at_first_call, lambda f: compile_at_first_call(f, "none")])
def test_and_recorded_or_traced(nets, make):
    """What a step is recorded as on a CPU, and what a compiler sees of it."""
    stock, by_hand, weights = nets
    episode, algorithm = episode_of(3), build("s-mldg", alpha=PAPER_ALPHA)

    def compute(*values):
        direction, _ = algorithm.gradient(stock, dict(zip(weights, values, strict=True)), episode)
        return torch.cat([direction[name].flatten() for name in weights])

    made = make(compute)
    for factor in (1.0, 1.1, 0.9):
        place = {name: factor * w for name, w in weights.items()}
        want, _ = algorithm_1(by_hand._training, place, episode, PAPER_ALPHA)
        assert_close(made(*place.values()), torch.cat([want[name].flatten() for name in weights]), rtol=1e-7, atol=1e-9)


def test_and_by_products_forward_through_gradients(nets):
    stock, by_hand, weights = nets
    algorithm = build("s-mldg", alpha=PAPER_ALPHA)
    want, _ = algorithm_1(by_hand._training, weights, episode_of(3), PAPER_ALPHA)
    assert_same(exact_by_products(algorithm.base, stock, weights, episode_of(3))[0], want)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("name", "orders"), [("mldg", (0, 1, 2)), ("s-mldg", (1, 2, 3, 4)), ("iga", (None,))])
def test_every_order_is_that_of_the_net_by_hand(nets, name, orders, recompute):
    stock, by_hand, weights = nets
    for order in orders:
        settings = {"penalty": 0.5} if order is None else {"alpha": PAPER_ALPHA, "order": order, "recompute": recompute}
        got, want = (build(name, **settings).gradient(n, weights, episode_of(4))[0] for n in (stock, by_hand))
        assert_same(got, want)


# ---------------------------------------------------------------------------- where nothing is composed


@pytest.mark.parametrize("name", ["agg", "fo-mldg", "fo-s-mldg", "ffo-s-mldg", "fish", "irm", "vrex"])
def test_first_order_training_composes_nothing(nets, name, monkeypatch):
    stock, _, weights = nets
    algorithm = build(name)
    memory = algorithm.memory(stock, weights, 3)
    got = algorithm.step(stock, weights, memory, episode_of(3))

    def fail(depth):
        raise AssertionError("it composes what it differentiates once")

    monkeypatch.setattr(nesting, "_compose", fail)
    again = algorithm.step(stock, weights, memory, episode_of(3))
    assert_close(again, got, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("kind", ["MLP with BatchNorm", "ViT without attention"])
def test_second_order_is_as_torch_has_it_to_the_bit(kind, monkeypatch):
    torch.manual_seed(0)
    token = nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.LayerNorm(10), nn.GELU(), nn.Linear(10, CLASSES))
    net = Net(mlp(False) if kind == "MLP with BatchNorm" else token, "recalibrate").to(dtype=torch.float64)
    got = build("mldg").gradient(net, net.params(), episode_of(3))
    monkeypatch.setattr(nesting, "_COMPOSED", {})
    assert_close(build("mldg").gradient(net, net.params(), episode_of(3)), got, rtol=0.0, atol=0.0)


# ---------------------------------------------------------------------------- what is refused


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.body, self.head = function, nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.function(self.body(x)))


@torch.jit.script
def normalize(x: torch.Tensor) -> torch.Tensor:
    return torch.layer_norm(x, [4])


class CallsScript(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(normalize(x))


REFUSED = {
    r"cannot do that rightly with cdist\(\)": lambda: Calls(lambda z: torch.cdist(z, z[:4])),
    r"cannot do that rightly with native_layer_norm\(\)": lambda: Calls(
        lambda z: torch.native_layer_norm(z, [4], None, None, 1e-5)[0]
    ),
    r"cannot do that rightly with logcumsumexp\(\)": lambda: Calls(lambda z: z.logcumsumexp(1)),
    r"cannot do that rightly with _native_batch_norm_legit": lambda: Calls(
        lambda z: torch.ops.aten._native_batch_norm_legit.no_stats(z, None, None, True, 0.1, 1e-5)[0]
    ),
    r"do that rightly with _native_batch_norm_legit": lambda: Calls(
        lambda z: torch.ops.aten._native_batch_norm_legit(z, None, None, True, 0.1, 1e-5)[0]
    ),
    r"do that rightly with native_layer_norm": lambda: Calls(
        lambda z: torch.ops.aten.native_layer_norm(z, [4], None, None, 1e-5)[0]
    ),
    r"do that rightly with cdist": lambda: Calls(lambda z: torch.ops.aten.cdist.default(z, z[:4])),
    r"cannot do that rightly with its layer '0' \(EmbeddingBag\)": lambda: nn.Sequential(
        nn.EmbeddingBag(5, 4), nn.Linear(4, 3)
    ),
    r"its layer '0' is of TorchScript": lambda: nn.Sequential(
        torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))), nn.Linear(4, 3)
    ),
    r"its layer '1' is of TorchScript or calls it": lambda: nn.Sequential(nn.Linear(4, 4), CallsScript()),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_differentiated_so_often_is_refused_before_training(said):
    net = Net(REFUSED[said](), "none")
    for algorithm in (build("mldg"), build("s-mldg"), build("s-mldg", order=2), build("mldg+ema"), build("iga")):
        with pytest.raises(UsageError, match=said):
            algorithm.check(net, 3)
    for algorithm in (build("agg"), build("fo-s-mldg"), build("s-mldg", order=1), build("mldg", order=1)):
        algorithm.check(net, 3)
    build("s-mldg").check(net, 1)  # a path of one domain takes no look-ahead


def test_what_no_trace_shows_is_refused_where_it_is_called():
    """The path of a forward pass that looks at its inputs is seen when it is taken, and not before."""
    torch.manual_seed(0)
    net = Net(Calls(lambda z: torch.cdist(z, z[:4]) if z.detach().isfinite().all() else z), "none")
    episode = Episode(torch.randn(3, 5, 4), torch.arange(15).reshape(3, 5) % 3, torch.arange(3), torch.tensor(0.5))
    build("s-mldg").check(net, 3)
    with pytest.raises(UsageError, match=r"cannot do that rightly with cdist\(\)"):
        build("s-mldg").gradient(net, net.params(), episode)
    build("agg").gradient(net, net.params(), episode)


def test_a_frozen_embedding_bag_is_not_refused():
    table = nn.EmbeddingBag(5, 4).requires_grad_(False)
    build("s-mldg").check(Net(nn.Sequential(table, nn.Linear(4, 3)), "none"), 3)
