"""Record a function of tensors as the list of its operations, and run the list again and again on a CPU.

A step is written with `torch.func`: gradients of gradients of one trial, mapped over all of them. On a CPU every
operation of a small net then costs more on its way through these transforms than in itself. They decide nothing that
depends on numbers, so the operations of one call, written down, are those of every call: the same kernels in the same
order give the same bits. What is computed twice from the same tensors, as gradients of gradients often do, is computed
once.

What is written down then runs with as little as possible beside its arithmetic. Every result lies where it lay at the
call before. An operation writes into memory that is kept between calls, and takes it over from results whose last
reader is through, so that little memory is in use, and stays in the cache. Where tensors stay, so do views of them:
transpositions and reshapes take no time. What depends on no number of the inputs is computed once. What the program
returns is new at every call, or else stays right until the next one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from seqdg.base import private

aten = torch.ops.aten
# These depend on the shape of a tensor, not on its numbers.
SHAPED = {
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.new_zeros.default, aten.new_ones.default, aten.new_full.default,
}  # fmt: skip
COPIES = {aten.clone.default, private.COPY_TO_TYPE}
PRODUCTS = {aten.mul.Scalar, aten.mul.Tensor}

Tensors = Callable[..., Any]  # from nested tensors to nested tensors
Slot = tuple[Any, Any]  # a list or dictionary of arguments, and where in it


class Form(NamedTuple):
    """How a tensor lies in memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def is_dense(self) -> bool:
        """Whether every number has memory of its own, and nothing lies between them."""
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return 0 in self.shape or reach + 1 == prod(self.shape)


def read_form(tensor: Tensor) -> Form:
    return Form(tuple(tensor.shape), tensor.stride(), tensor.dtype)


@dataclass(eq=False, slots=True)
class Node:
    """An operation of a program; one of its inputs, or a constant, where it has no function.

    args, kwargs: with nodes in place of tensors.   form: of its result, None where that is several tensors.
    base: the node whose memory the result shares; of one result of several, the operation.
    """

    function: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[Node, ...] = ()  # all nodes among its arguments
    form: Form | None = None
    base: Node | None = None


# ---------------------------------------------------------------------------- recording


class NotRecordable(RuntimeError):
    """Why the operations of one call may not be those of every call."""


def record_at_first_call(function: Tensors, renews: bool = True) -> Tensors:
    """Return the same function, which records its first call, checks the record at the second and from then on runs it.

    renews: return new tensors at every call; else those that a call returns may be written over by the next one.

    Later calls give tensors of the same shapes. Where the operations cannot be written down, or give anything else than
    the function at the second call, it stays as it is.
    """
    state: dict[str, Any] = {"calls": 0}

    def call(*arguments: Any) -> Any:
        state["calls"] += 1
        if state["calls"] == 1:
            state["recorded"], out = _record(function, arguments, renews)
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


def _record(function: Tensors, arguments: tuple[Any, ...], renews: bool) -> tuple[Tensors | None, Any]:
    """Return the recorded function, None where there is none, and what the call returns."""
    flat, _ = private.flatten(arguments)
    recorder = Recorder([value for value in flat if isinstance(value, Tensor)])
    try:
        with torch.no_grad(), recorder:
            out = function(*arguments)
        leaves, of_result = private.flatten(out)
        program = recorder.finish(leaves, renews)
    except NotRecordable:
        return None, function(*arguments)
    with torch.no_grad():  # prepare it, so that what is checked at the second call is what runs from then on
        program(*(value for value in flat if isinstance(value, Tensor)))

    template = private.unflatten(range(len(leaves)), of_result)

    def run(*others: Any) -> Any:
        with torch.no_grad():
            return _arrange(template, program(*_list_tensors(others, [])))

    return run, out


def _list_tensors(nested: Any, tensors: list[Tensor]) -> list[Tensor]:
    """Add all tensors of nested lists, tuples and dictionaries, in their order, to a list: a step is always given the
    same, so that nothing else needs to be known of them. torch's own functions take longer than a small product."""
    if isinstance(nested, Tensor):
        tensors.append(nested)
    elif isinstance(nested, dict):
        for value in nested.values():
            _list_tensors(value, tensors)
    elif isinstance(nested, list | tuple):
        for value in nested:
            _list_tensors(value, tensors)
    return tensors


def _arrange(template: Any, values: Sequence[Any]) -> Any:
    """Put values in place of their numbers in nested lists, tuples and dictionaries."""
    if isinstance(template, int):
        return values[template]
    if isinstance(template, dict):
        return {name: _arrange(part, values) for name, part in template.items()}
    parts = [_arrange(part, values) for part in template]
    return type(template)(*parts) if hasattr(template, "_fields") else type(template)(parts)


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

    def finish(self, results: list[Any], renews: bool = True) -> Program:
        """Return the program from the inputs to these results, which are new tensors in every run if it renews them."""
        outputs = [self._find_all(value, []) for value in results]
        needed = {value for value in outputs if isinstance(value, Node)}
        for node in reversed(self.operations):
            if node in needed:
                needed.update(node.inputs)
        operations = [node for node in self.operations if node in needed]
        constants = {n: t for n, t in self.constants.items() if n in needed}
        return Program(self.inputs, constants, operations, outputs, renews)

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
    pairs = zip(private.flatten(one)[0], private.flatten(other)[0], strict=True)
    return all(torch.equal(a, b) or bool(torch.equal(a.nan_to_num(), b.nan_to_num())) for a, b in pairs)


# ---------------------------------------------------------------------------- running


@dataclass
class Program:
    """Operations in their order, as a function of the inputs."""

    inputs: Sequence[Node]
    constants: Mapping[Node, Tensor]  # their numbers may change between calls
    operations: Sequence[Node]
    results: Sequence[Any]
    renews: bool = True  # what it returns; else that may lie where it lay in the run before
    prepared: Prepared | None = None

    def __call__(self, *inputs: Tensor) -> list[Any]:
        if self.prepared is None or not self.prepared.fits(inputs):
            self.prepared = _Preparation(self, inputs).finish()
            return list(self.prepared.results)
        return self.prepared.run(inputs)


class Call(NamedTuple):
    """One operation. takers: slots among the arguments of others, and among the results, for what it returns."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    takers: list[Slot]

    def run(self) -> Any:
        value = self.function(*self.args, **self.kwargs)
        for holder, key in self.takers:
            holder[key] = value
        return value


@dataclass(frozen=True)
class Prepared:
    """A program in memory of its own, for inputs that lie in memory as the first ones did."""

    inputs: list[Tensor]  # of the last run
    forms: list[Form]  # of the inputs
    takers: list[list[Slot]]  # of each input
    views: list[list[Call]]  # of each input: they stay as long as it is the same tensor
    calls: list[Call]
    results: list[Any]

    def fits(self, inputs: Sequence[Tensor]) -> bool:
        pairs = zip(inputs, self.inputs, self.forms, strict=True)
        return all(new is old or read_form(new) == form for new, old, form in pairs)

    def run(self, inputs: Sequence[Tensor]) -> list[Any]:
        for i, tensor in enumerate(inputs):
            if tensor is not self.inputs[i]:
                self.inputs[i] = tensor
                for holder, key in self.takers[i]:
                    holder[key] = tensor
                for call in self.views[i]:
                    call.run()
        for function, args, kwargs, takers in self.calls:
            value = function(*args, **kwargs)
            for holder, key in takers:
                holder[key] = value
        return list(self.results)


# Where the value of a node lies: at the same address in every run; in an input; or elsewhere in every run.
FIXED, BOUND, NEW = range(3)


class _Preparation:
    """The first run of a program, which chooses how each operation is run from then on."""

    def __init__(self, program: Program, inputs: Sequence[Tensor]) -> None:
        self.program, self.inputs = program, list(inputs)
        self.value: dict[Node, Any] = {**dict(zip(program.inputs, inputs, strict=True)), **program.constants}
        self.kind = dict.fromkeys(program.inputs, BOUND) | dict.fromkeys(program.constants, FIXED)
        self.takers: dict[Node, list[Slot]] = {n: [] for n in program.inputs}
        self.views: dict[Node, list[Call]] = {n: [] for n in program.inputs}
        self.calls: list[Call] = []
        self.once: set[Node] = set()  # depend on no number
        self.owner = {node: node for node in self.value}  # in whose memory a node lies
        self.same: dict[Node, Node] = {}  # nodes whose value is that of another
        self.memory: dict[Node, Tensor] = {}  # of owners, where others may take it over
        self.free: dict[tuple[torch.dtype, int], list[Tensor]] = {}
        self.returned: set[Node] = set()  # owners of the results

    def finish(self) -> Prepared:
        self._find_owners()
        operations = self.program.operations
        last = {self.owner[used]: i for i, node in enumerate(operations) for used in node.inputs}
        ending: list[list[Node]] = [[] for _ in operations]  # owners whose memory is read for the last time
        for owner, i in last.items():
            if owner not in self.returned:
                ending[i].append(owner)
        for node, over in zip(operations, ending, strict=True):
            if node not in self.same:
                self._prepare(node, over)
            for memory in (self.memory.pop(owner) for owner in over if owner in self.memory):
                self.free.setdefault((memory.dtype, len(memory)), []).append(memory)
        results = self._fill(list(self.program.results))
        takers, views = [self.takers[n] for n in self.program.inputs], [self.views[n] for n in self.program.inputs]
        return Prepared(self.inputs, [read_form(t) for t in self.inputs], takers, views, self.calls, results)

    def _find_owners(self) -> None:
        """Find out in whose memory each node lies. Copies, and products with 1, are what they are made from, where
        they are not returned."""
        for node in self.program.operations:
            self.owner[node] = node if node.base is None else self.owner[node.base]
        self.returned = {self.owner[r] for r in self.program.results if isinstance(r, Node)}
        for node in self.program.operations:
            source = _find_source(node)
            if node.base is not None:
                self.owner[node] = self.owner[node.base]
            elif source is not None and node not in self.returned:
                self.same[node], self.owner[node] = self.same.get(source, source), self.owner[source]

    def _prepare(self, node: Node, ending: Sequence[Node]) -> None:
        call = Call(node.function, self._fill(list(node.args)), self._fill(dict(node.kwargs)), [])
        used = [self.same.get(n, n) for n in node.inputs]
        is_view, is_returned = node.base is not None, node in self.returned
        is_constant = node.function in SHAPED or self.once.issuperset(used)
        stays = is_view or is_constant or (is_returned and self.program.renews)
        written = None if stays else self._write_over(node, call, ending)
        if written is not None:
            self.kind[node] = FIXED
            self.calls.append(written)
            return
        self.value[node] = call.run()
        self.takers[node] = call.takers
        if is_constant and not is_returned:
            self.once.add(node)
        if is_view:
            self.kind[node] = max(self.kind[n] for n in used)
        else:
            self.kind[node] = FIXED if node in self.once else NEW
        if self.kind[node] == BOUND:
            self.views[self.owner[node]].append(call)
        elif self.kind[node] == NEW:
            self.calls.append(call)

    def _write_over(self, node: Node, call: Call, ending: Sequence[Node]) -> Call | None:
        """Run a node so that it writes into memory that is kept; None where it cannot."""
        form = node.form
        if form is None or not form.is_dense or any(isinstance(v, Node | tuple) for v in node.kwargs.values()):
            return None
        giver, size = self._find_giver(node, form, ending), prod(form.shape)
        if giver is not None:
            memory = self.memory[giver]
        elif free := self.free.get((form.dtype, size)):
            memory = free.pop()
        else:
            memory = torch.empty(size, dtype=form.dtype, device="cpu")
        out = memory.as_strided(form.shape, form.stride)
        for written in _list_ways_to_write(call, out):
            try:
                written.run()
            except (TypeError, RuntimeError):  # it has no such arguments
                continue
            if giver is not None:
                del self.memory[giver]
            self.value[node], self.memory[node] = out, memory
            return written
        return None

    def _find_giver(self, node: Node, form: Form, ending: Sequence[Node]) -> Node | None:
        """Find memory that a number-by-number operation may write over: of an argument that nobody reads later."""
        if torch.Tag.pointwise not in node.function.tags:
            return None
        lying: dict[Node, set[tuple[int, Form]]] = {}  # how arguments lie in the memory of each owner
        for n in node.inputs:
            value = self.value[self.same.get(n, n)]
            lying.setdefault(self.owner[n], set()).add((value.data_ptr(), read_form(value)))
        for owner in ending:
            if owner in self.memory and lying[owner] == {(self.memory[owner].data_ptr(), form)}:
                return owner
        return None

    def _fill(self, holder: Any) -> Any:
        """Put values in the slots of nodes, now and whenever they are other tensors."""
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, list | tuple):
                holder[key] = self._fill(list(value))
            elif isinstance(value, Node):
                node = self.same.get(value, value)
                holder[key] = self.value[node]
                if self.kind[node] != FIXED:
                    self.takers[node].append((holder, key))
        return holder


def _find_source(node: Node) -> Node | None:
    """Return what a node copies, or multiplies by 1."""
    is_product = node.function in PRODUCTS and type(node.args[1]) in (int, float) and node.args[1] == 1
    if not is_product and node.function not in COPIES:
        return None
    source = node.args[0]
    return source if isinstance(source, Node) and source.form == node.form else None


def _list_ways_to_write(call: Call, out: Tensor) -> Iterator[Call]:
    """List calls that write the same result into a tensor, the one that takes the least time on its way first."""
    function: Any = call.function
    if function in COPIES:
        yield call._replace(function=out.copy_, kwargs={})
    if function is aten.relu.default:
        yield call._replace(function=torch.clamp_min, kwargs={"min": 0, "out": out})
    direct = getattr(torch, function.overloadpacket.__name__, None)
    if isinstance(direct, type(torch.add)):
        yield call._replace(function=direct, kwargs={**call.kwargs, "out": out})
    for name in function.overloadpacket.overloads():
        other = getattr(function.overloadpacket, name)
        names = private.list_outputs(other)
        if len(names) == 1 and torch.Tag.generated not in other.tags:
            yield call._replace(function=other, kwargs={**call.kwargs, names[0]: out})
