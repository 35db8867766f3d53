"""BatchNorm as a pure function: no forward pass ever changes a buffer.

`frozen`: the running statistics are constants, the affine part is trained (pretrained nets).
`recalibrate`: training normalizes by the statistics of the minibatch at hand; the running ones are estimated once,
over source data, for the weights that are deployed.
`none`: the net has no BatchNorm.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from seqdg import kernels

POLICIES = ("frozen", "recalibrate", "none")


class PureBatchNorm(nn.Module):
    """Stands where a stock BatchNorm stood, with the same parameter and buffer names."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, stock: _BatchNorm, on_batch: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = stock.weight, stock.bias, stock.eps
        device = stock.weight.device if stock.weight is not None else None
        zeros = torch.zeros(stock.num_features, device=device)
        self.register_buffer("running_mean", zeros if stock.running_mean is None else stock.running_mean.clone())
        self.register_buffer("running_var", zeros + 1.0 if stock.running_var is None else stock.running_var.clone())
        self.on_batch = on_batch
        self.seen: tuple[Tensor, Tensor] | None = None
        self.recording = False
        self.parts = 1  # domains that follow each other in a batch, each normalized by itself

    def forward(self, x: Tensor, rest: Tensor | None = None, act: str = "none") -> Tensor:
        """The activation of what is normalized, with something added to it where that is given."""
        if self.recording:
            others = [d for d in range(x.dim()) if d != 1]
            self.seen = x.mean(others), x.var(others, unbiased=False)
        if not self.on_batch:
            return kernels.add_and_activate(self._normalized(x, self.running_mean, self.running_var), rest, act)
        if self.weight is not None and self.bias is not None and len(x) % self.parts == 0:
            whole = kernels.normalize_and_activate(x, self.weight, self.bias, rest, self.parts, self.eps, act)
            if whole is not None:
                return whole
        normal = [self._by_batch(part) for part in torch.chunk(x, self.parts)]
        return kernels.add_and_activate(torch.cat(normal) if self.parts > 1 else normal[0], rest, act)

    def _by_batch(self, x: Tensor) -> Tensor:
        if x.is_cuda and x.dim() > 3 and _in_vmap():  # torch has no batch_norm for it
            others = [d for d in range(x.dim()) if d != 1]
            return self._normalized(x, x.mean(others), x.var(others, unbiased=False))
        return batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def _normalized(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        scale = torch.rsqrt(var + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        shape = (-1,) + (1,) * (x.dim() - 2)
        return x * scale.reshape(shape) + shift.reshape(shape)


def _in_vmap() -> bool:
    return any(level.key() == TransformType.Vmap for level in retrieve_all_functorch_interpreters())


def has_batchnorm(module: nn.Module) -> bool:
    return any(isinstance(m, _BatchNorm) for m in module.modules())


def batchnorm_is_frozen(module: nn.Module) -> bool:
    """Whether some BatchNorm has weights and none of these are trained."""
    own = [p for m in module.modules() if isinstance(m, _BatchNorm) for p in m.parameters()]
    return bool(own) and without_statistics(module) is None and not any(p.requires_grad for p in own)


def without_statistics(module: nn.Module) -> str | None:
    """Name of the first BatchNorm that keeps no running statistics, if there is one."""
    layers = ((name, m) for name, m in module.named_modules() if isinstance(m, _BatchNorm))
    return next((name for name, m in layers if m.running_mean is None), None)


def purified(module: nn.Module, on_batch: bool) -> nn.Module:
    """A copy whose BatchNorm layers are pure; `on_batch` says which statistics they normalize by."""
    if isinstance(module, _BatchNorm):
        return PureBatchNorm(module, on_batch)
    module = copy.deepcopy(module)
    for name, layer in list(module.named_modules()):
        if isinstance(layer, _BatchNorm):
            module.set_submodule(name, PureBatchNorm(layer, on_batch))
    return module


@contextmanager
def recorded(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """While open, forward passes note the mean and variance that reach every BatchNorm; filled in when it closes."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, PureBatchNorm)}
    found: dict[str, Tensor] = {}
    for layer in layers.values():
        layer.recording = True
    try:
        yield found
        for name, layer in layers.items():
            assert layer.seen is not None, f"{name} was not reached"
            dot = "." if name else ""
            found[f"{name}{dot}running_mean"], found[f"{name}{dot}running_var"] = layer.seen
    finally:
        for layer in layers.values():
            layer.recording, layer.seen = False, None


@contextmanager
def in_parts(module: nn.Module, parts: int) -> Iterator[None]:
    """While open, a batch is that many domains one after the other, and each has statistics of its own."""
    layers = [layer for layer in module.modules() if isinstance(layer, PureBatchNorm)]
    for layer in layers:
        layer.parts = parts
    try:
        yield
    finally:
        for layer in layers:
            layer.parts = 1
