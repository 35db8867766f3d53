"""One file touches private parts of torch and scikit-learn, and the installed versions have all that it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import seqdg
from seqdg.base import private

ROOT = Path(seqdg.__file__).parent
ADAPTER = ROOT / "base" / "private.py"

# Everything that the adapter needs, by module, and what for.
NEEDED = {
    "torch._C._functorch": {
        "get_unwrapped": "see through a transform of torch.func",
        "peek_interpreter_stack": "know whether a transform of torch.func is at work",
    },
    "torch._functorch.pyfunctorch": {"retrieve_all_functorch_interpreters": "list the transforms of torch.func"},
    "torch._guards": {
        "TracingContext": "let the compiler find its programs on disk",
        "tracing": "let the compiler find its programs on disk",
    },
    "torch._subclasses.fake_tensor": {
        "FakeTensor": "know whether a compiler is tracing",
        "FakeTensorMode": "let the compiler find its programs on disk",
    },
    "torch._inductor": {"compile": "compile a step", "config": "know the compiler's options"},
    "torch": {
        "_batch_norm_impl_index": "know a batch norm, whose third derivative is wrong",
        "_foreach_add": "add weights of all names in one launch",
        "_foreach_add_": "do so in place",
        "_foreach_copy_": "copy memories in one launch",
        "_foreach_mul": "scale weights of all names in one launch",
        "_foreach_sub": "subtract weights of all names in one launch",
        "_fused_adam_": "take a step of Adam in one pass",
        "_fused_adamw_": "take a step of AdamW in one pass",
        "_fused_sgd_": "take a step of SGD in one pass",
        "_is_zerotensor": "tell tensors without memory",
        "_native_batch_norm_legit": "know a batch norm, whose third derivative is wrong",
        "_weight_norm": "know a weight norm, whose second derivative is wrong",
        "_weight_norm_interface": "know a weight norm, whose second derivative is wrong",
    },
    "torch.nn.modules.batchnorm": {"_BatchNorm": "find BatchNorm layers"},
    "torch.nn.modules.conv": {"_ConvNd": "find convolutions"},
    "torch.nn.modules.dropout": {"_DropoutNd": "find dropout layers"},
    "torch.utils": {"_pytree": "walk nested tensors"},
    "torch.utils._pytree": {
        "tree_flatten": "walk nested tensors",
        "tree_map_only": "walk nested tensors",
        "tree_unflatten": "walk nested tensors",
    },
    "torch.utils._python_dispatch": {"TorchDispatchMode": "record the operations of a step"},
}
# Private attributes and arguments of objects that torch and scikit-learn make; tests below read each.
ATTRIBUTES = {
    "_allow_non_fake_inputs", "_apply", "_baseline_prediction", "_cdata", "_predictors", "_schema", "_to_copy",
    "_version",
}  # fmt: skip
PRIVATE = re.compile(r"_[A-Za-z]\w*")


def private_names(path: Path) -> Iterator[tuple[int, str]]:
    """Private names of torch and scikit-learn that a file imports, or reads as attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
            is_ours = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_ours and (node.attr in ATTRIBUTES or node.attr.startswith(("_foreach_", "_fused_"))):
                yield node.lineno, node.attr
        elif isinstance(node, ast.keyword) and node.arg in ATTRIBUTES:
            names = []
            yield node.value.lineno, node.arg
        else:
            continue
        for name in names:
            first, *parts = name.split(".")
            if first in ("torch", "sklearn"):
                yield from ((node.lineno, part) for part in parts if PRIVATE.fullmatch(part))


def test_no_other_file_touches_a_private_part():
    for path in sorted(ROOT.rglob("*.py")):
        if path != ADAPTER:
            for line, name in private_names(path):
                pytest.fail(f"{path.relative_to(ROOT)}:{line} uses {name}: put it behind a function of base/private.py")


def test_the_lists_above_name_everything_that_the_adapter_touches():
    parts = {part for module, names in NEEDED.items() for part in (*module.split("."), *names)}
    used = {name for _, name in private_names(ADAPTER)}
    assert used == {part for part in parts if PRIVATE.fullmatch(part)} | ATTRIBUTES


@pytest.mark.parametrize(
    ("module", "name", "why"), [(m, n, w) for m, names in NEEDED.items() for n, w in names.items()]
)
def test_the_installed_versions_have_what_the_adapter_needs(module, name, why):
    try:
        holder: Any = import_module(module)
    except ImportError:
        holder = None
    if not hasattr(holder, name):
        package = module.partition(".")[0]
        release = import_module(package).__version__
        pytest.fail(f"{package} {release} has no {module}.{name}, which base/private.py needs to {why}.")


def test_transforms_are_listed_from_the_outermost_on():
    seen = []

    def look(x):
        seen.append((private.list_transforms(), private.is_transformed()))
        assert private.count_transforms() == len(private.list_transforms())
        return x.sum()

    look(torch.ones(2))
    torch.func.vmap(torch.func.grad(look))(torch.ones(3, 2))
    torch.func.grad(torch.func.grad(look))(torch.ones(()))
    assert seen == [([], False), (["vmap", "grad"], True), (["grad", "grad"], True)]


def test_a_wrapped_tensor_is_unwrapped_and_none_of_these_is_fake():
    inside = []

    def look(x):
        inside.append(private.unwrap(x))
        return x

    torch.func.vmap(look)(torch.ones(3, 2))
    assert inside[0].shape == (3, 2)
    assert not private.is_fake(inside[0])


def test_views_share_their_storage_and_writes_are_counted():
    x = torch.zeros(4)
    assert private.identify_storage(x.untyped_storage()) == private.identify_storage(x[1:].untyped_storage())
    assert private.identify_storage(x.untyped_storage()) != private.identify_storage(x.clone().untyped_storage())
    before = private.count_writes(x)
    x.add_(1.0)
    assert private.count_writes(x) == before + 1


def test_operations_say_what_they_write():
    aten = torch.ops.aten
    assert private.writes_inputs(aten.add_.Tensor)
    assert not private.writes_inputs(aten.add.Tensor)
    assert private.list_outputs(aten.add.out) == ["out"]
    assert private.COPY_TO_TYPE is torch.ops.aten._to_copy.default


def test_all_tensors_of_a_module_are_replaced():
    module = nn.BatchNorm1d(2)
    private.replace_tensors(module, lambda t: torch.full_like(t, 3))
    assert all((t == 3).all() for t in (*module.parameters(), *module.buffers()))


def test_a_function_of_other_tensors_is_traced():
    constant = torch.full((2,), 3.0)
    graph = private.trace_operations(lambda x: (x * constant,), [torch.ones(2)])
    assert graph(torch.ones(2))[0].tolist() == [3.0, 3.0]


def test_boosted_trees_are_listed_by_round():
    from sklearn.ensemble import HistGradientBoostingRegressor

    x = np.arange(60.0)[:, None]
    estimator = HistGradientBoostingRegressor(max_iter=3).fit(x, x[:, 0])
    assert [len(trees) for trees in private.list_boosted_trees(estimator)] == [1, 1, 1]
    assert float(np.ravel(private.get_boosting_start(estimator))[0]) == pytest.approx(29.5)
