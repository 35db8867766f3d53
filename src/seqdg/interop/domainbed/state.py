"""What a live object holds, as a tree of plain values and tensors, and back into an object that was built the same way.

A class of DomainBed keeps its state where it likes: in buffers, optimizers, dictionaries of tensors, objects of its
own. `save_state` walks all of it. `restore_state` puts the values back in place, so that an optimizer still holds the
weights that it steps. No class is named in the tree and none is made from it: reading it runs no foreign code. What the
object made only while it trained (an inner copy of a net) is not in a new one: `restore_state` says which paths are
missing, the caller lets the object train a step, and restores again.

Its random numbers come from torch, numpy and Python: `Randomness` lends those of the process to one trial.
"""

from __future__ import annotations

import random
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqdg.training import make_stream

Tree = dict[str, Any]
CONSTANTS = (
    FunctionType, MethodType, BuiltinFunctionType, ModuleType, type, torch.device, torch.dtype, torch.Size,
    torch.memory_format, range,
)  # fmt: skip
_MODULE = frozenset(vars(nn.Module())) - {"training", "_parameters", "_buffers", "_modules"}  # torch's own hooks


class Unstorable(ValueError):
    """An object holds something that cannot be written down."""


def save_state(value: Any) -> tuple[Tree, list[Tensor]]:
    """Return the tree of all that a value holds, and the tensors that it points to by number."""
    saver = _Saver()
    return saver.save(value, ""), saver.tensors


def restore_state(value: Any, saved: Tree, tensors: list[Tensor], device: torch.device | str = "cpu") -> list[str]:
    """Put saved values back into an object; return the paths of those for which it has no room yet.

    device: for tensors that were not on the CPU.
    """
    restorer = _Restorer(tensors, torch.device(device))
    restorer.restore(saved, value, "")
    return restorer.missing


class _Saver:
    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is used twice

    def save(self, value: Any, path: str) -> Tree:
        if value is None or isinstance(value, bool | int | float | str):
            if isinstance(value, np.generic):
                value = value.item()
            return {"kind": "plain", "value": value}
        if isinstance(value, CONSTANTS):
            return {"kind": "constant"}
        if id(value) in self._seen:
            return {"kind": "same", "number": self._seen[id(value)]}
        number = len(self._seen)
        self._seen[id(value)] = number
        self._alive.append(value)
        return {"number": number, **self._save_object(value, path)}

    def _save_object(self, value: Any, path: str) -> Tree:
        if isinstance(value, Tensor):
            return self._save_tensor(value)
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biuf":
                raise Unstorable(f"{path} is an array of {value.dtype}")
            return {"kind": "array", "tensor": self._put(torch.from_numpy(np.array(value)))}
        if isinstance(value, np.generic):
            return {"kind": "scalar", "value": value.item()}
        if isinstance(value, torch.Generator):
            return {"kind": "generator", "tensor": self._put(value.get_state())}
        if isinstance(value, nn.Module):
            return {"kind": "object", "parts": self._save_dict(_read_module(value), path)}
        if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
            return {"kind": "stateful", "state": self.save(value.state_dict(), f"{path} (its state)")}
        if isinstance(value, dict):
            return {"kind": "dict", "parts": self._save_dict(value, path)}
        if isinstance(value, list | tuple | deque):
            kind = next(k.__name__ for k in (list, tuple, deque) if isinstance(value, k))
            return {"kind": kind, "parts": [self.save(v, f"{path}[{i}]") for i, v in enumerate(value)]}
        if isinstance(value, set | frozenset):
            return {"kind": "set", "parts": [self.save(v, path) for v in sorted(value, key=repr)]}
        if hasattr(value, "__dict__"):
            return {"kind": "object", "parts": self._save_dict(vars(value), path)}
        raise Unstorable(f"{path} is of type {type(value).__name__}")

    def _save_tensor(self, value: Tensor) -> Tree:
        saved = {"kind": "tensor", "tensor": self._put(value), "leaf": value.is_leaf and value.requires_grad}
        saved["on_cpu"] = value.device.type == "cpu"  # an optimizer counts its steps there, whatever the device
        if value.is_leaf and value.grad is not None:
            saved["grad"] = self._put(value.grad)
        return saved

    def _save_dict(self, values: dict[Any, Any], path: str) -> list[tuple[Tree, Tree]]:
        return [(self.save(k, path), self.save(v, f"{path}.{k}" if path else str(k))) for k, v in values.items()]

    def _put(self, value: Tensor) -> int:
        self.tensors.append(value.detach())
        return len(self.tensors) - 1


class _Restorer:
    def __init__(self, tensors: list[Tensor], device: torch.device) -> None:
        self.tensors, self.device, self.missing = tensors, device, list[str]()
        self._known: dict[int, Any] = {}

    def restore(self, saved: Tree, now: Any, path: str) -> Any:
        """Return the saved value: `now` itself, filled, where it can be filled; what belongs elsewhere stays as is."""
        kind = saved["kind"]
        if kind in ("plain", "scalar"):
            return saved["value"]
        if kind == "constant":
            return now
        if kind == "same":
            return self._known.get(saved["number"], now)
        self._known[saved["number"]] = now  # a thing may hold itself
        value = getattr(self, f"_restore_{kind}")(saved, now, path)
        self._known[saved["number"]] = value
        return value

    def _restore_tensor(self, saved: Tree, now: Any, path: str) -> Any:
        value = self.tensors[saved["tensor"]]
        if not isinstance(now, nn.Parameter):
            return value.to("cpu" if saved["on_cpu"] else self.device, copy=True).requires_grad_(bool(saved["leaf"]))
        if now.shape != value.shape:
            self.missing.append(path)
            return now
        with torch.no_grad():
            now.copy_(value)
        now.grad = self.tensors[saved["grad"]].to(now.device, copy=True) if "grad" in saved else None
        return now

    def _restore_array(self, saved: Tree, now: Any, path: str) -> Any:
        return self.tensors[saved["tensor"]].numpy().copy()

    def _restore_generator(self, saved: Tree, now: Any, path: str) -> Any:
        if isinstance(now, torch.Generator):
            now.set_state(self.tensors[saved["tensor"]])
        else:
            self.missing.append(path)
        return now

    def _restore_stateful(self, saved: Tree, now: Any, path: str) -> Any:
        if not callable(getattr(now, "load_state_dict", None)):
            self.missing.append(path)
            return now
        try:
            now.load_state_dict(self.restore(saved["state"], None, path))
        except (ValueError, KeyError, RuntimeError):  # it is of another shape yet
            self.missing.append(path)
        return now

    def _restore_dict(self, saved: Tree, now: Any, path: str) -> Any:
        values = now if isinstance(now, dict) else {}
        self._fill(values, saved, path)
        return values

    def _restore_object(self, saved: Tree, now: Any, path: str) -> Any:
        if now is None or not hasattr(now, "__dict__"):
            self.missing.append(path)
            return now
        if isinstance(now, nn.Module):
            parts = _read_module(now)
            self._fill(parts, saved, path)
            hooks = {name: value for name, value in vars(now).items() if name in _MODULE}
            vars(now).clear()
            vars(now).update(hooks | parts)
        else:
            self._fill(vars(now), saved, path)
        return now

    def _fill(self, values: dict[Any, Any], saved: Tree, path: str) -> None:
        """Fill a dictionary in place, in the saved order."""
        before = dict(values)
        values.clear()
        for key, part in saved["parts"]:
            name = self.restore(key, None, path)
            missing = len(self.missing)
            value = self.restore(part, before.get(name), f"{path}.{name}" if path else str(name))
            if value is None and name not in before and len(self.missing) > missing:
                continue
            values[name] = value

    def _restore_list(self, saved: Tree, now: Any, path: str) -> Any:
        parts = self._restore_parts(saved, now, path)
        if isinstance(now, list):
            now[:] = parts
            return now
        return parts

    def _restore_tuple(self, saved: Tree, now: Any, path: str) -> Any:
        return tuple(self._restore_parts(saved, now, path))

    def _restore_deque(self, saved: Tree, now: Any, path: str) -> Any:
        return deque(self._restore_parts(saved, now, path), now.maxlen if isinstance(now, deque) else None)

    def _restore_set(self, saved: Tree, now: Any, path: str) -> Any:
        return set(self._restore_parts(saved, None, path))

    def _restore_parts(self, saved: Tree, now: Any, path: str) -> list[Any]:
        before = list(now) if isinstance(now, list | tuple | deque) else []
        before += [None] * (len(saved["parts"]) - len(before))
        return [
            self.restore(part, b, f"{path}[{i}]")
            for i, (part, b) in enumerate(zip(saved["parts"], before, strict=False))
        ]


def _read_module(module: nn.Module) -> dict[str, Any]:
    """Return what a module holds beside torch's own hooks."""
    return {name: value for name, value in vars(module).items() if name not in _MODULE}


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
