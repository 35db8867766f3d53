"""Nets by the shape of an input."""

from __future__ import annotations

from torch import nn


class Vectors(nn.Module):
    def __init__(self, inputs, hparams):
        super().__init__()
        self.n_outputs = hparams["mlp_width"]
        self.body = nn.Sequential(
            nn.Linear(inputs, self.n_outputs), nn.ReLU(), nn.Dropout(hparams["mlp_dropout"]),
            nn.Linear(self.n_outputs, self.n_outputs),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


class Pictures(nn.Module):
    n_outputs = 8

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3, stride=4)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu().mean((2, 3))


def Featurizer(input_shape, hparams):
    if len(input_shape) == 1:
        return Vectors(input_shape[0], hparams)
    if input_shape[1:3] == (28, 28):
        return Pictures(input_shape[0])
    raise NotImplementedError


def Classifier(in_features, out_features, is_nonlinear=False):
    return nn.Linear(in_features, out_features)
