"""A frozen teacher is a constant of the loss: CONTRIBUTING.md names this file."""

from dataclasses import dataclass
from functools import cache

import torch

from seqdg import Algorithm, Net, register, setting

TEACHER = Net(torch.nn.Linear(196, 32), "none")  # yours, with its weights from a file


@cache
def place_teacher(device, dtype):
    return TEACHER.to(device, dtype)


@register("follow-teacher")
@dataclass(frozen=True)
class FollowTeacher(Algorithm):
    """AGG, with features whose likeness among rows is as in a teacher's (You, 2026).

    weight: of the teacher.
    """

    weight: float = setting(0.1, least=0.0)

    def loss(self, net, params, episode):
        teacher = place_teacher(episode.x.device, episode.x.dtype)
        told = teacher(teacher.params(), episode.x.flatten(0, 1))
        z = net.domain_features(params, episode).flatten(0, 1)
        return net.losses(params, episode).mean() + self.weight * torch.nn.functional.mse_loss(z @ z.T, told @ told.T)
