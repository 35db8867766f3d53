"""BatchNorm as a pure function: no forward pass ever changes a buffer.

`frozen`: the running statistics are constants, and the affine part is trained (for pretrained networks).
`recalibrate`: training normalizes by the statistics of each minibatch; the running ones are estimated once, over source
data, for the weights that are deployed. They are the mean and the variance over all sources together.
`running`: the same, but what is deployed is what torch's running averages come to: the mean over minibatches of one
source each of their means, and of their unbiased variances. How far the sources lie apart is not in these variances.
`none`: the net has no BatchNorm.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from seqdg import kernels
from seqdg.base import private

POLICIES = ("frozen", "recalibrate", "running", "none")
ON_BATCH = ("recalibrate", "running")  # training normalizes by each minibatch


class PureBatchNorm(nn.Module):
    """Replaces a stock BatchNorm, with the same parameter and buffer names."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, stock: private.BatchNormLayer, on_batch: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = stock.weight, stock.bias, stock.eps
        device = stock.weight.device if stock.weight is not None else None
        zeros = torch.zeros(stock.num_features, device=device)
        self.register_buffer("running_mean", zeros if stock.running_mean is None else stock.running_mean.clone())
        self.register_buffer("running_var", zeros + 1.0 if stock.running_var is None else stock.running_var.clone())
        self.on_batch = on_batch
        self.seen: tuple[Tensor, Tensor] | None = None
        self.recording = False
        self.unbiased = False  # whether recorded variances divide by the count less one
        self.parts = 1  # domains that a batch holds one after the other, each normalized by itself

    def forward(self, x: Tensor, rest: Tensor | None = None, act: str = "none") -> Tensor:
        """act(normalized x + rest)"""
        if self.recording:
            self.seen = _measure(x, self.unbiased)
        if not self.on_batch:
            return kernels.add_and_activate(self._normalize(x, self.running_mean, self.running_var), rest, act)
        if self.weight is not None and self.bias is not None and len(x) % self.parts == 0:
            whole = kernels.normalize_and_activate(x, self.weight, self.bias, rest, self.parts, self.eps, act)
            if whole is not None:
                return whole
        normal = [self._normalize_by_batch(part) for part in torch.chunk(x, self.parts)]
        return kernels.add_and_activate(torch.cat(normal) if self.parts > 1 else normal[0], rest, act)

    def _normalize_by_batch(self, x: Tensor) -> Tensor:
        if x.is_cuda and x.dim() > 3 and "vmap" in private.list_transforms():  # torch has no batch_norm for this case
            return self._normalize(x, *_measure(x, unbiased=False))
        return batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def _normalize(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        scale = torch.rsqrt(var + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        shape = (-1,) + (1,) * (x.dim() - 2)
        return x * scale.reshape(shape) + shift.reshape(shape)


def _measure(x: Tensor, unbiased: bool) -> tuple[Tensor, Tensor]:
    """Return mean and variance by channel."""
    others = [d for d in range(x.dim()) if d != 1]
    return x.mean(others), x.var(others, unbiased=unbiased)


def has_batchnorm(module: nn.Module) -> bool:
    return any(isinstance(m, private.BatchNormLayer) for m in module.modules())


def is_batchnorm_frozen(module: nn.Module) -> bool:
    """Whether the module has BatchNorm weights and none of them is trained."""
    weights = [p for m in module.modules() if isinstance(m, private.BatchNormLayer) for p in m.parameters()]
    trained = any(p.requires_grad for p in weights)
    return bool(weights) and not trained and find_batchnorm_without_statistics(module) is None


def find_batchnorm_without_statistics(module: nn.Module) -> str | None:
    """Return the name of the first BatchNorm that keeps no running statistics, or None."""
    layers = ((name, m) for name, m in module.named_modules() if isinstance(m, private.BatchNormLayer))
    return next((name for name, m in layers if m.running_mean is None), None)


def purify_batchnorm(module: nn.Module, on_batch: bool) -> nn.Module:
    """Return a copy whose BatchNorm layers are pure and normalize by the batch if `on_batch`, else by constants."""
    if isinstance(module, private.BatchNormLayer):
        return PureBatchNorm(module, on_batch)
    module = copy.deepcopy(module)
    for name, layer in list(module.named_modules()):
        if isinstance(layer, private.BatchNormLayer):
            module.set_submodule(name, PureBatchNorm(layer, on_batch))
    return module


@contextmanager
def record_statistics(module: nn.Module, unbiased: bool = False) -> Iterator[dict[str, Tensor]]:
    """Record the mean and variance that reach every BatchNorm in a forward pass; the dict is filled at the end."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, PureBatchNorm)}
    statistics: dict[str, Tensor] = {}
    for layer in layers.values():
        layer.recording, layer.unbiased = True, unbiased
    try:
        yield statistics
        for name, layer in layers.items():
            assert layer.seen is not None, f"{name} was not reached"
            dot = "." if name else ""
            statistics[f"{name}{dot}running_mean"], statistics[f"{name}{dot}running_var"] = layer.seen
    finally:
        for layer in layers.values():
            layer.recording, layer.seen = False, None


def pool_statistics(parts: Sequence[Mapping[str, Tensor]], policy: str) -> dict[str, Tensor]:
    """Return what is deployed, from what `record_statistics` gave for each of several minibatches of equal size.

    m_k, v_k: mean and variance of the k-th of K minibatches.   m = 1/K * sum of m_k
    `recalibrate`: m and 1/K * sum of (v_k + m_k^2) - m^2, with v_k over the count: those of all rows together.
    `running`: m and 1/K * sum of v_k, with v_k over the count less one: torch's, of `momentum=None`.
    """
    mean: dict[str, Tensor] = {}
    second: dict[str, Tensor] = {}
    whole = policy == "recalibrate"
    for part in parts:
        for name in (n for n in part if n.endswith("running_mean")):
            at, around = part[name], part[_name_variance(name)]
            mean[name] = mean.get(name, 0) + at / len(parts)
            second[name] = second.get(name, 0) + (around + at**2 if whole else around) / len(parts)
    return {**mean, **{_name_variance(n): s - mean[n] ** 2 if whole else s for n, s in second.items()}}


def _name_variance(mean: str) -> str:
    return mean.removesuffix("mean") + "var"


@contextmanager
def split_batches(module: nn.Module, parts: int) -> Iterator[None]:
    """Treat every batch as `parts` domains one after the other, each normalized by its own statistics."""
    layers = [layer for layer in module.modules() if isinstance(layer, PureBatchNorm)]
    for layer in layers:
        layer.parts = parts
    try:
        yield
    finally:
        for layer in layers:
            layer.parts = 1
