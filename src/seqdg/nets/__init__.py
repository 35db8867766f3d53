"""Nets: a module as a pure function of its weights, and the networks that can be asked for by name.

`Net` wraps a module, with its BatchNorm policy. `build_net` makes one by name with its first weights; `find_backbone`
says what is known of a backbone: how it is built, which inputs it reads, where its weights are.
"""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.nets.backbones import (
        BACKBONES,
        IMAGENET,
        PICTURES,
        TEXTS,
        Backbone,
        Normalization,
        alexnet,
        efficientnet_lite0,
        expand_channels,
        mlp,
        resnet18,
        resnet50,
        resnet50_v1,
    )
    from seqdg.nets.batchnorm import POLICIES, has_batchnorm, is_batchnorm_frozen
    from seqdg.nets.factory import (
        BACKBONE_NAMES,
        FOREIGN,
        NET_NAMES,
        BuiltNet,
        NetSpec,
        build_backbone,
        build_net,
        find_backbone,
        find_weights,
        find_weights_at_hand,
        get_published_dropout,
        is_from_package,
        is_own_net,
        shorten_net,
    )
    from seqdg.nets.foreign_models import CONFIG, HF, HUB_TEXTS, RECIPES, find_hf, load_tokenizer
    from seqdg.nets.net import FACTORS, Criterion, Net, RecomputingNet, check_outputs
    from seqdg.nets.points import Point
    from seqdg.nets.weights import initialize, read_weights

__getattr__, __dir__ = open_front(__name__)
