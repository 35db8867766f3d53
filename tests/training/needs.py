"""What a method needs beside minibatches, an example of each: CONTRIBUTING.md names this file."""

from dataclasses import dataclass

from torch.nn.functional import log_softmax

from seqdg import Algorithm, noise, register, setting


@register("near-target")
@dataclass(frozen=True)
class NearTarget(Algorithm):
    """AGG, and the mean features of the sources near those of the target (after Tzeng et al., 2014).

    weight: of the squared distance.
    """

    uses = ("target",)
    needs_features = True
    weight: float = setting(0.1, least=0.0)

    def loss(self, net, params, episode):
        z = net.domain_features(params, episode).flatten(0, 1).mean(0)
        gap = z - net.features(params, episode.target).mean(0)
        return net.losses(params, episode).mean() + self.weight * (gap * gap).sum()


@register("two-views")
@dataclass(frozen=True)
class TwoViews(Algorithm):
    """AGG, and like predictions for two views of a picture (after Sajjadi et al., 2016).

    weight: of the squared difference of the log-probabilities.
    """

    uses = ("view",)
    weight: float = setting(0.1, least=0.0)

    def loss(self, net, params, episode):
        first, second = (log_softmax(net(params, x.flatten(0, 1)), -1) for x in (episode.x, episode.view))
        return net.losses(params, episode).mean() + self.weight * ((first - second) ** 2).mean()


@register("rare-groups")
@dataclass(frozen=True)
class RareGroups(Algorithm):
    """AGG, in which rows of group 0 count more (You, 2026).

    factor: how much more.
    """

    uses = ("group",)
    factor: float = setting(2.0, above=0.0)

    def loss(self, net, params, episode):
        rows = net.row_losses(params, episode)
        weights = 1 + (self.factor - 1) * (episode.group == 0).to(rows.dtype)
        return (weights * rows).sum() / weights.sum()


@register("adam-head")
@dataclass(frozen=True)
class AdamHead(Algorithm):
    """AGG with an optimizer of its own for biases, at a tenth of the rate: groups of weights by name (You, 2026)."""

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()

    def choose_optimizer(self, name):
        return "adam" if name.endswith("bias") else ""

    def pace(self, name):
        return 0.1 if name.endswith("bias") else 1.0


def change(images, key):
    """Give each of the images (image, channel, height, width) in [0, 1] a brightness of its own."""
    factor = 0.5 + noise.uniform(key, (len(images), 1, 1, 1), dtype=images.dtype)
    return (factor * images).clamp(0, 1)
