"""One data set: three domains of noise."""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

DATASETS = ["Debug28", "RotatedMNIST"]


def get_dataset_class(dataset_name):
    return globals()[dataset_name]


def num_environments(dataset_name):
    return len(get_dataset_class(dataset_name).ENVIRONMENTS)


class MultipleDomainDataset:
    N_STEPS = 5001
    CHECKPOINT_FREQ = 100
    N_WORKERS = 0
    ENVIRONMENTS = None

    def __getitem__(self, index):
        return self.datasets[index]

    def __len__(self):
        return len(self.datasets)


class Debug28(MultipleDomainDataset):
    ENVIRONMENTS = ["0", "1", "2"]  # noqa: RUF012

    def __init__(self, root, test_envs, hparams):
        self.input_shape, self.num_classes = (3, 28, 28), 2
        self.datasets = [TensorDataset(torch.randn(16, 3, 28, 28), torch.randint(0, 2, (16,))) for _ in range(3)]
