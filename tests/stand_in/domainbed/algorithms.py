"""Algorithms: modules with `update` and `predict`, which step their own optimizers."""

from __future__ import annotations

import copy
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from domainbed import networks
from domainbed.lib.misc import MovingAverage

ALGORITHMS = ["ERM", "VREx", "GroupDRO", "Fish", "Mixup", "Fishr", "RDM", "TRM"]
backpack = None


def get_algorithm_class(algorithm_name):
    if algorithm_name not in globals():
        raise NotImplementedError(f"Algorithm not found: {algorithm_name}")
    return globals()[algorithm_name]


class Algorithm(nn.Module):
    def __init__(self, input_shape, num_classes, num_domains, hparams):
        super().__init__()
        self.hparams = hparams

    def update(self, minibatches, unlabeled=None):
        raise NotImplementedError

    def predict(self, x):
        raise NotImplementedError


class ERM(Algorithm):
    """The mean loss over all rows"""

    def __init__(self, input_shape, num_classes, num_domains, hparams):
        super().__init__(input_shape, num_classes, num_domains, hparams)
        self.featurizer = networks.Featurizer(input_shape, hparams)
        self.classifier = networks.Classifier(self.featurizer.n_outputs, num_classes, hparams["nonlinear_classifier"])
        self.network = nn.Sequential(self.featurizer, self.classifier)
        self.optimizer = self.make_optimizer(self.network)

    def make_optimizer(self, network):
        return torch.optim.Adam(network.parameters(), lr=self.hparams["lr"], weight_decay=self.hparams["weight_decay"])

    def objective(self, minibatches):
        return torch.stack([F.cross_entropy(self.predict(x), y) for x, y in minibatches]).mean()

    def update(self, minibatches, unlabeled=None):
        loss = self.objective(minibatches)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}

    def predict(self, x):
        return self.network(x)


class VREx(ERM):
    """A penalty, and a new optimizer when it sets in"""

    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("update_count", torch.tensor([0]))

    def objective(self, minibatches):
        losses = torch.stack([F.cross_entropy(self.predict(x), y) for x, y in minibatches])
        if self.update_count == self.hparams["vrex_penalty_anneal_iters"]:
            self.optimizer = self.make_optimizer(self.network)
        weight = self.hparams["vrex_lambda"] if self.update_count >= self.hparams["vrex_penalty_anneal_iters"] else 1.0
        self.update_count += 1
        return losses.mean() + weight * losses.var(unbiased=False)


class GroupDRO(ERM):
    """Weights of domains in a buffer that is empty at first"""

    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("q", torch.Tensor())

    def objective(self, minibatches):
        losses = torch.stack([F.cross_entropy(self.predict(x), y) for x, y in minibatches])
        if not len(self.q):
            self.q = torch.ones(len(minibatches))
        self.q *= (self.hparams["groupdro_eta"] * losses.detach()).exp()
        self.q /= self.q.sum()
        return torch.dot(losses, self.q)


class Fish(ERM):
    """Makes a net and an optimizer in every step, and remembers the state of the latter"""

    def __init__(self, *args):
        super().__init__(*args)
        self.optimizer_inner_state = None

    def update(self, minibatches, unlabeled=None):
        self.network_inner = copy.deepcopy(self.network)
        self.optimizer_inner = self.make_optimizer(self.network_inner)
        if self.optimizer_inner_state is not None:
            self.optimizer_inner.load_state_dict(self.optimizer_inner_state)
        for x, y in minibatches:
            loss = F.cross_entropy(self.network_inner(x), y)
            self.optimizer_inner.zero_grad()
            loss.backward()
            self.optimizer_inner.step()
        self.optimizer_inner_state = self.optimizer_inner.state_dict()
        with torch.no_grad():
            for p, q in zip(self.network.parameters(), self.network_inner.parameters(), strict=True):
                p += self.hparams["meta_lr"] * (q - p)
        return {"loss": loss.item()}


class Mixup(ERM):
    """Draws from torch, numpy and Python"""

    def objective(self, minibatches):
        print("mixing")
        order = torch.randperm(len(minibatches)).tolist()
        random.shuffle(order)
        lam, loss = np.random.beta(self.hparams["mixup_alpha"], self.hparams["mixup_alpha"]), 0.0
        for (xi, yi), j in zip(minibatches, order, strict=True):
            logits = self.predict(lam * xi + (1 - lam) * minibatches[j][0])
            loss += lam * F.cross_entropy(logits, yi) + (1 - lam) * F.cross_entropy(logits, minibatches[j][1])
        return loss / len(minibatches)


class Averages(ERM):
    """Moving averages outside of its module, as Fishr has them"""

    def __init__(self, input_shape, num_classes, num_domains, hparams):
        super().__init__(input_shape, num_classes, num_domains, hparams)
        self.ema_per_domain = [MovingAverage(0.9) for _ in range(num_domains)]

    def objective(self, minibatches):
        z = [self.featurizer(x) for x, _ in minibatches]
        means = [e.update({"mean": v.mean(0)})["mean"] for e, v in zip(self.ema_per_domain, z, strict=True)]
        apart = sum(((v.mean(0) - m) ** 2).mean() for v in z for m in means)
        return super().objective(minibatches) + 0.1 * apart


class Fishr(ERM):
    def __init__(self, *args):
        assert backpack is not None, "Install backpack with: 'pip install backpack-for-pytorch==1.3.0'"
        super().__init__(*args)


class RDM(ERM):
    def objective(self, minibatches):
        return torch.zeros(len(minibatches)).cuda().sum()


class TRM(ERM):
    def __init__(self, *args):
        super().__init__(*args)
        self.alpha = torch.ones(3).cuda()
