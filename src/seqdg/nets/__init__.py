"""Nets: a module as a pure function of its weights, and the nets that can be asked for by name.

`Net` wraps a module, with its BatchNorm policy. `build_net` makes one by name with its first weights.
"""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.nets.backbones import alexnet, efficientnet_lite0, mlp, resnet18, resnet50, resnet50_v1
    from seqdg.nets.batchnorm import POLICIES, has_batchnorm, is_batchnorm_frozen
    from seqdg.nets.factory import (
        BACKBONES,
        FOREIGN,
        IMAGENET,
        NET_NAMES,
        BuiltNet,
        NetSpec,
        Normalization,
        build_net,
        expand_channels,
        get_published_dropout,
        is_own_net,
        shorten_net,
    )
    from seqdg.nets.net import Criterion, Net, RecomputingNet
    from seqdg.nets.points import Point
    from seqdg.nets.weights import initialize, load_weights, read_weights

__getattr__, __dir__ = open_front(__name__)
