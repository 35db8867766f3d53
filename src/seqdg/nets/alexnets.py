"""AlexNet (Krizhevsky, 2014: "One weird trick") under torchvision's parameter names, so that its weight files load.

Images are at least 63 pixels high and wide.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqdg.nets.points import Point

POOLINGS = (2, 5, 12)  # layers of the features that are followed by a point


class AlexNet(nn.Module):
    def __init__(self, classes: int, dropout: float) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.after1, self.after2, self.after3 = (Point(f"after{i}") for i in range(1, 4))
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, classes),
        )

    def forward(self, x: Tensor) -> Tensor:  # (batch, 3, height, width)
        for i, layer in enumerate(self.features):
            x = layer(x)
            if i in POOLINGS:
                x = self.get_submodule(f"after{POOLINGS.index(i) + 1}")(x)
        logits: Tensor = self.classifier(torch.flatten(self.avgpool(x), 1))
        return logits


def alexnet(classes: int, dropout: float = 0.5) -> AlexNet:
    return AlexNet(classes, dropout)
