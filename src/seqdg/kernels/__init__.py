"""Triton kernels: the same numbers in fewer passes over memory.

`convolution` covers a convolution and what follows it (BatchNorm, a shortcut, an activation, max pooling), and `nested`
gradients of their gradients; `triton_pixels` covers the augmentation of images. They fall back to plain torch where the
kernels cannot run.
"""

from __future__ import annotations

from seqdg.kernels.convolution import (
    ACTIVATIONS,
    ConvLayer,
    FrozenBatchNorm,
    PreparedLayer,
    add_and_activate,
    can_nest,
    can_run_kernels,
    convolve,
    convolve_activate_and_pool,
    convolve_and_activate,
    nest,
    normalize_and_activate,
    pool_largest,
    prepare_layers,
)
from seqdg.kernels.geometry import Geometry, pad_same

__all__ = [
    "ACTIVATIONS",
    "ConvLayer",
    "FrozenBatchNorm",
    "Geometry",
    "PreparedLayer",
    "add_and_activate",
    "can_nest",
    "can_run_kernels",
    "convolve",
    "convolve_activate_and_pool",
    "convolve_and_activate",
    "nest",
    "normalize_and_activate",
    "pad_same",
    "pool_largest",
    "prepare_layers",
]
