"""Nets: a module as a pure function of its weights, and the nets that can be asked for by name.

`Net` wraps a module, with its BatchNorm policy. `build_net` makes one by name with its first weights.
"""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.nets.alexnets import alexnet
    from seqdg.nets.batchnorm import POLICIES, has_batchnorm, is_batchnorm_frozen
    from seqdg.nets.efficientnet_lite import efficientnet_lite0
    from seqdg.nets.factory import (
        BACKBONES,
        FOREIGN,
        NET_NAMES,
        BuiltNet,
        NetSpec,
        build_net,
        get_published_dropout,
        mlp,
    )
    from seqdg.nets.net import Criterion, Net
    from seqdg.nets.normalization import IMAGENET, Normalization, expand_channels
    from seqdg.nets.points import Point
    from seqdg.nets.recompute import RecomputingNet
    from seqdg.nets.resnet import resnet18, resnet50, resnet50_v1
    from seqdg.nets.weights import initialize, load_weights, read_weights

__getattr__, __dir__ = open_front(__name__)
