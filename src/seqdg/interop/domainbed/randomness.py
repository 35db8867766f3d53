"""The random numbers of a process, lent to one trial: DomainBed's classes draw from torch's, numpy's and Python's."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqdg.training import make_stream


class Randomness:
    """Within it, everything random comes from the trial's seed; afterwards the process draws as if nothing had been.

    with Randomness(seed): ...
    """

    def __init__(self, seed: int, device: torch.device | None = None) -> None:
        self.seed, self.on_gpu = seed, device is not None and device.type == "cuda"
        self.device = device

    def __enter__(self) -> Randomness:
        self._before = self._read()
        self.restart()
        return self

    def restart(self) -> None:
        """Begin with the seed again."""
        words = self.draw_words()
        torch.default_generator.manual_seed(words[0])
        if self.on_gpu:
            torch.cuda.manual_seed(words[0])
        np.random.seed(words[1])
        random.seed(words[2])

    def draw_words(self) -> list[int]:
        """Return the seeds of torch, numpy and Python."""
        return [int(word) for word in make_stream(self.seed, "domainbed").integers(2**32, size=3)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(self._before)

    def save(self) -> tuple[dict[str, Any], list[Tensor]]:
        """Return all states as plain values and tensors."""
        states = self._read()
        name, words, *rest = states["numpy"]
        version, numbers, gauss = states["python"]
        tensors = [states["torch"], torch.from_numpy(words.astype(np.int64)), torch.tensor(numbers)]
        tensors += [states["cuda"]] if self.on_gpu else []
        return {"numpy": [name, *rest], "python": [version, gauss]}, tensors

    def restore(self, saved: dict[str, Any], tensors: list[Tensor]) -> None:
        """Go on from saved states."""
        name, *rest = saved["numpy"]
        version, gauss = saved["python"]
        states = {
            "torch": tensors[0],
            "numpy": (name, tensors[1].numpy().astype(np.uint32), *rest),
            "python": (version, tuple(tensors[2].tolist()), gauss),
        }
        if self.on_gpu:
            states["cuda"] = tensors[3]
        self._write(states)

    def _read(self) -> dict[str, Any]:
        states: dict[str, Any] = {
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }
        if self.on_gpu:
            states["cuda"] = torch.cuda.get_rng_state(self.device or "cuda")
        return states

    def _write(self, states: dict[str, Any]) -> None:
        torch.set_rng_state(states["torch"])
        np.random.set_state(states["numpy"])
        random.setstate(states["python"])
        if self.on_gpu:
            torch.cuda.set_rng_state(states["cuda"], self.device or "cuda")
