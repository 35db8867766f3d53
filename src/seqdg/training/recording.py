"""Record a function of tensors as the list of its operations, without the Python and the transforms around them.

A step is written with `torch.func`: gradients of gradients of one trial, mapped over all of them. On a CPU every
operation of a small net then costs more on its way through these transforms than in itself. They decide nothing that
depends on numbers, so the operations of one call, written down, are those of every call: the same kernels in the same
order give the same bits. What is computed twice from the same tensors, as gradients of gradients often do, is computed
once. `replay` runs what is written down here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from seqdg.base import private
from seqdg.training.replay import Node, Program, read_form

Tensors = Callable[..., Any]  # from nested tensors to nested tensors


class NotRecordable(RuntimeError):
    """Why the operations of one call may not be those of every call."""


def record_at_first_call(function: Tensors) -> Tensors:
    """Return the same function, which records its first call, checks the record at the second and from then on runs it.

    Later calls give tensors of the same shapes. Where the operations cannot be written down, or give anything else than
    the function at the second call, it stays as it is.
    """
    state: dict[str, Any] = {"calls": 0}

    def call(*arguments: Any) -> Any:
        state["calls"] += 1
        if state["calls"] == 1:
            state["recorded"], out = _record(function, arguments)
            return out
        recorded = state["recorded"]
        if recorded is None:
            return function(*arguments)
        if state["calls"] > 2:
            return recorded(*arguments)
        out = function(*arguments)
        if not _is_same(out, recorded(*arguments)):
            state["recorded"] = None
        return out

    return call


def _record(function: Tensors, arguments: tuple[Any, ...]) -> tuple[Tensors | None, Any]:
    """Return the recorded function, None where there is none, and what the call returns."""
    flat, structure = private.flatten(arguments)
    recorder = Recorder([value for value in flat if isinstance(value, Tensor)])
    try:
        with torch.no_grad(), recorder:
            out = function(*arguments)
        leaves, of_result = private.flatten(out)
        program = recorder.finish(leaves)
    except NotRecordable:
        return None, function(*arguments)
    with torch.no_grad():  # prepare it, so that what is checked at the second call is what runs from then on
        program(*(value for value in flat if isinstance(value, Tensor)))

    def run(*others: Any) -> Any:
        values, other = private.flatten(others)
        assert other == structure  # a step is always given the same
        with torch.no_grad():
            return private.unflatten(program(*(v for v in values if isinstance(v, Tensor))), of_result)

    return run, out


class Recorder(private.DispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operation on tensors while it is entered, each once."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes = WeakTensorKeyDictionary()  # of tensors that are still in use
        self.known: dict[Hashable, Node] = {}
        self.operations: list[Node] = []
        self.constants: dict[Node, Tensor] = {}
        self.inputs = [Node(form=read_form(tensor)) for tensor in inputs]
        self.nodes.update(zip(inputs, self.inputs, strict=True))

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if private.writes_inputs(function) or torch.Tag.nondeterministic_seeded in function.tags:
            raise NotRecordable(f"{function} writes over a tensor, or draws at random")
        read: list[tuple[Tensor, Node]] = []
        inputs, named = self._find_all(args, read), self._find_all(kwargs or {}, read)
        out = function(*args, **(kwargs or {}))
        node = self._write(function, inputs, named, [n for _, n in read])
        if isinstance(out, Tensor):
            self.nodes[out] = _describe(node, out, read)
        elif isinstance(out, tuple | list) and all(isinstance(part, Tensor) for part in out):
            parts = [self._write(operator.getitem, (node, i), {}, [node]) for i in range(len(out))]
            bases = {_describe(part, value, read).base for part, value in zip(parts, out, strict=True)}
            if len(bases) > 1:
                raise NotRecordable(f"{function} returns views and other tensors together")
            node.base = bases.pop() if bases else None
            for part, value in zip(parts, out, strict=True):
                part.base, self.nodes[value] = node, part
        else:
            raise NotRecordable(f"{function} looks at numbers")
        return out

    def finish(self, results: list[Any]) -> Program:
        """Return the program from the inputs to these results."""
        outputs = [self._find_all(value, []) for value in results]
        needed = {value for value in outputs if isinstance(value, Node)}
        for node in reversed(self.operations):
            if node in needed:
                needed.update(node.inputs)
        operations = [node for node in self.operations if node in needed]
        return Program(self.inputs, {n: t for n, t in self.constants.items() if n in needed}, operations, outputs)

    def _write(self, function: Any, args: Any, kwargs: Any, inputs: list[Node]) -> Node:
        """Return the operation's node, which is an older one where the same was computed before."""
        key = _make_key((function, args, kwargs))
        if key not in self.known:
            self.known[key] = Node(function, args, kwargs, tuple(dict.fromkeys(inputs)))
            self.operations.append(self.known[key])
        return self.known[key]

    def _find_all(self, value: Any, read: list[tuple[Tensor, Node]]) -> Any:
        """Return nodes in place of tensors, and add both to those that are read."""
        if isinstance(value, Tensor):
            node = self._find(value)
            read.append((value, node))
            return node
        if isinstance(value, dict):
            return {name: self._find_all(v, read) for name, v in value.items()}
        return tuple(self._find_all(v, read) for v in value) if isinstance(value, list | tuple) else value

    def _find(self, tensor: Tensor) -> Node:
        """Return the node of a tensor. One that no operation has made is a constant, such as a buffer of the net."""
        node: Node | None = self.nodes.get(tensor)  # type: ignore[no-untyped-call]
        if node is None:
            node = self.nodes[tensor] = Node(form=read_form(tensor))
            self.constants[node] = tensor
        return node


def _describe(node: Node, value: Tensor, read: Sequence[tuple[Tensor, Node]]) -> Node:
    """Note how a node's value lies in memory, and in whose, if in that of a tensor that was read."""
    storage = private.identify_storage(value.untyped_storage())
    node.form = read_form(value)
    node.base = next((n for t, n in read if private.identify_storage(t.untyped_storage()) == storage), None)
    return node


def _make_key(value: Any) -> Hashable:
    """Return what tells operations apart: numbers by their type too, as 1 and 1.0 are not the same to torch."""
    if isinstance(value, dict):
        return tuple((name, _make_key(v)) for name, v in value.items())
    if isinstance(value, list | tuple):
        return tuple(_make_key(v) for v in value)
    return type(value), repr(value) if isinstance(value, float) else value


def _is_same(one: Any, other: Any) -> bool:
    """Whether two results are equal to the bit, or both not a number."""
    pairs = zip(private.list_leaves(one), private.list_leaves(other), strict=True)
    return all(torch.equal(a, b) or bool(torch.equal(a.nan_to_num(), b.nan_to_num())) for a, b in pairs)
