"""One group of trials becomes records."""

from __future__ import annotations

import hashlib
import math
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad

import seqdg
from seqdg.episode import Params
from seqdg.evaluate import metrics
from seqdg.place import Place, stack_of
from seqdg.record import DIVERGED, DONE, Evaluation, Record
from seqdg.trainer import Stack, State
from seqdg.trial import Group

LOSS_POINTS = 200


def run_group(group: Group, place: Place, tick: Callable[[int], None] = lambda work: None) -> list[Record]:
    """Trains and judges every trial of a group; `tick` hears of work done, in steps of one trial."""
    began = time.perf_counter()
    if place.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(place.device)
    stack = stack_of(group, place)
    state, size = stack.start(), len(group.trials)
    evaluations: list[list[Evaluation]] = [[] for _ in group.trials]
    losses: list[Tensor] = []
    deployed: Params = {}
    for step in stack.protocol.evaluation_steps():
        state = stack.advance(state, step, lambda steps: tick(steps * size))
        losses += state.losses
        state.losses = []
        deployed = stack.deploy(state)
        for found, new in zip(evaluations, judged(stack, state, deployed), strict=True):
            found.append(new)
    curve = torch.cat(losses).T.cpu()  # (trial, step)
    seconds = (time.perf_counter() - began) / size
    return [
        Record(
            key=trial.key,
            description=trial.description(),
            status=DONE if _is_sound(curve[i], evaluations[i]) else DIVERGED,
            history=evaluations[i],
            losses=_thinned(curve[i]),
            seconds=seconds,
            peak_memory=_peak_memory(place.device),
            stacked=size,
            device=device_name(place.device),
            versions=versions(),
            commit=commit(),
            weights=_hash({name: value[i] for name, value in deployed.items()}),
        )
        for i, trial in enumerate(group.trials)
    ]


def judged(stack: Stack, state: State, deployed: Params) -> list[Evaluation]:
    """Metrics of every trial on its sources' validation rows and its held-out domains."""
    columns = [(*job.split.validation, *job.split.test) for job in stack.jobs]
    longest = [max(len(rows[k]) for rows in columns) for k in range(len(columns[0]))]
    rows = torch.stack([torch.cat([pad(r, (0, n - len(r))) for r, n in zip(c, longest, strict=True)]) for c in columns])
    logits, y = stack.predict(deployed, rows)
    found: list[dict[str, list[float]]] = []
    for k, (part, labels) in enumerate(zip(torch.split(logits, longest, 1), torch.split(y, longest, 1), strict=True)):
        lengths = torch.tensor([len(c[k]) for c in columns], device=y.device)
        mask = torch.arange(longest[k], device=y.device) < lengths[:, None]
        found.append({name: value.tolist() for name, value in metrics(part, labels, mask).items()})
    sources = len(stack.jobs[0].split.validation)
    return [
        Evaluation(
            step=state.step,
            source={name: [f[name][i] for f in found[:sources]] for name in found[0]},
            held_out={name: [f[name][i] for f in found[sources:]] for name in found[0]},
        )
        for i in range(len(stack.jobs))
    ]


def _is_sound(curve: Tensor, history: list[Evaluation]) -> bool:
    """Whether training stayed finite to the end."""
    last = history[-1].source["log_loss"] + history[-1].held_out["log_loss"]
    return bool(torch.isfinite(curve).all()) and all(math.isfinite(v) for v in last)


def _thinned(curve: Tensor) -> list[float]:
    """Means over equal stretches of the training."""
    return [float(part.double().mean()) for part in curve.tensor_split(min(LOSS_POINTS, len(curve)))]


def _hash(params: Params) -> str:
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(params[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


@cache
def versions() -> dict[str, str]:
    return {"seqdg": seqdg.__version__, "torch": torch.__version__, "python": platform.python_version()}


@cache
def commit() -> str:
    """Of the source tree that runs, where it is a git checkout; marked + where it has changes."""
    folder = Path(seqdg.__file__).resolve().parent
    if not (folder.parent.parent / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=folder, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
