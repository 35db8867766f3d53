"""Triton kernels: the same numbers in fewer passes over memory.

`convolution` covers a convolution and what follows it (BatchNorm, a shortcut, an activation, max pooling), and `nested`
gradients of their gradients: both compute in plain torch where no kernel can run. The kernels are in `normalization`,
`windows`, `pixels` (the augmentation of images) and `stacks` (weights of stacked trials), which need Triton, and
`differentiable` gives the first two gradients.
"""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.kernels.convolution import (
        ACTIVATIONS,
        ConvLayer,
        FrozenBatchNorm,
        PreparedLayer,
        add_and_activate,
        can_contrast,
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
    from seqdg.kernels.pixels import augment_images
    from seqdg.kernels.stacks import add_pull, measure_contrasts, step_with_adam, step_with_momentum

__getattr__, __dir__ = open_front(__name__)
