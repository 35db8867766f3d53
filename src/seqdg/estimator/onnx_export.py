"""A model as one ONNX file, its preprocessing inside, checked against onnxruntime before it is kept.

A table enters as two matrices: `numbers` (row, column), double, NaN if a value is missing; and `categories` (row,
column), strings, empty if a category is missing. The columns' order is in the file's metadata under `seqdg`. Images are
`images` (row, channel, size, size), bytes, already resized; arrays as `x`. Out come `logits` and `probabilities`, or
`prediction` (row,) in a regression.

torch traces preprocessing and neural network; skl2onnx converts an estimator of scikit-learn, in double precision if it
can. Histogram gradient boosting is written here, because skl2onnx fails on it: its trees compare in single precision,
which the training rows had, so every threshold is rounded down. An ensemble is the graphs of all its members side by
side, and their weighted mean.
"""

from __future__ import annotations

import copy
import json
import logging
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor, nn

from seqdg.base import UsageError, list_some, private, refuse_broken, state_reason, write_file
from seqdg.bench import FittedEstimator
from seqdg.data import Frame, Scaling, find_missing_numbers, make_frame
from seqdg.estimator.model import ArrayModel, EnsembleModel, Model, NetModel
from seqdg.estimator.model_inputs import ImageInput, TableInput
from seqdg.training import FLOOR, pool_outputs

TOLERANCE = 1e-5
MOST_NAMES = 8  # of columns that are printed; the metadata have all
MATRIX = "inputs_of_the_estimator"  # (row, input) double, what the graph in front gives
ML = ("ai.onnx.ml", 3)
Feed = dict[str, NDArray[Any]]


class _ModelGraph(nn.Module):
    """A net with its weights: from the net's inputs to logits and probabilities, or to predictions (row,)."""

    target: Tensor  # mean and deviation

    def __init__(self, model: NetModel) -> None:
        super().__init__()
        self.algorithm, self.names, self.members = model.algorithm, tuple(model.params), model.members
        self.temperature = model.temperature
        self.is_regression = model.is_regression
        self.register_buffer("target", torch.tensor(model.target, dtype=torch.float64))  # the exporter rounds numbers
        self.net, members = replace(model, device="cpu").net
        for k, params in enumerate(members):
            for i, name in enumerate(self.names):
                self.register_buffer(f"weight_{k}_{i}", params[name].clone())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        each = []
        for k in range(self.members):
            params = {name: getattr(self, f"weight_{k}_{i}") for i, name in enumerate(self.names)}
            each.append(self.algorithm.predict(self.net, params, x))
        outputs = each[0] if self.members == 1 else pool_outputs(torch.stack(each), self.members)[0]
        outputs = outputs / self.temperature
        if not self.is_regression:
            return outputs, torch.softmax(outputs, dim=1)
        mean, deviation = self.target.to(outputs.dtype)
        return ((outputs * deviation + mean).squeeze(1),)


class _TableGraph(nn.Module):
    """Preprocessing, and a network if any: raw numbers, and categories by their index (-1 if unknown or missing)."""

    fill: Tensor
    mean: Tensor
    factor: Tensor
    knots: Tensor
    scores: Tensor
    measured: Tensor  # (column of numbers,) False for a date's parts, in which no number means missing

    def __init__(self, model: NetModel | None, table: TableInput) -> None:
        super().__init__()
        self.model = None if model is None else _ModelGraph(model)
        for name, constants in table.scaling._asdict().items():
            self.register_buffer(name, constants)
        measured = [n in table.names and n not in table.dates for n in table.numeric]
        self.register_buffer("measured", torch.tensor(measured, dtype=torch.bool))
        self.missing = find_missing_numbers(table.na)
        self.sizes = [len(known) for known in table.vocabulary.values()]

    def forward(self, numbers: Tensor | None, codes: Tensor | None) -> tuple[Tensor, ...]:
        parts = []
        if numbers is not None:
            scaling = Scaling(self.fill, self.mean, self.factor, self.knots, self.scores)
            for number in self.missing:
                numbers = torch.where((numbers == number) & self.measured, torch.nan, numbers)
            parts.append(scaling.in_few_operations(numbers))
        if codes is not None:
            for j, size in enumerate(self.sizes):
                parts.append((codes[:, j : j + 1] == torch.arange(size)).to(torch.float64))
        inputs = torch.cat(parts, dim=1)
        return (inputs,) if self.model is None else tuple(self.model(inputs))  # None: an estimator follows


class _ArrayGraph(nn.Module):
    def __init__(self, model: NetModel) -> None:
        super().__init__()
        self.model, self.prepare = _ModelGraph(model), model.input.prepare

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model(self.prepare(x)))


def list_outputs(model: Model) -> list[str]:
    """List what comes out of a model's file."""
    return ["prediction"] if model.is_regression else ["logits", "probabilities"]


def export_onnx(model: Model, path: Path) -> float:
    """Write the file; return the largest difference of a probability, or of a number in units of the deviation, from
    the model's own on rows made up to check."""
    if model.together:
        many = "all" if model.least else model.together
        raise UsageError(
            f"{model.name} predicts {many} rows of one domain at once (it is transductive), and an "
            "ONNX file predicts row by row. Keep the model as seqdg writes it, or choose another algorithm."
        )
    _check_kind(model)
    _require_onnx()
    proto, gap = _export(model)
    write_file(path, proto.SerializeToString())
    return gap


def _check_kind(model: Model) -> None:
    """Raise a UsageError where a model is neither a network nor an estimator, or has such a member."""
    if isinstance(model, EnsembleModel):
        for member, _ in model.members:
            try:
                _check_kind(member)
            except UsageError as error:
                raise UsageError(
                    f"An ensemble is exported as one graph of all its members. {error} Or fit one model, with --single "
                    "(ensemble=False)."
                ) from None
    elif isinstance(model, ArrayModel) and not isinstance(model.predict, FittedEstimator):
        raise UsageError(
            f"{model.name} trains no neural network, and only networks and scikit-learn's own models are exported to "
            "ONNX. Keep the model as seqdg writes it, or choose another algorithm."
        )


def _export(model: Model) -> tuple[Any, float]:
    """Return the graph, and by how much it differs from the model."""
    if isinstance(model, ArrayModel):
        return _export_estimator(model)
    if isinstance(model, EnsembleModel):
        proto = _export_ensemble(model)
    elif isinstance(model.input, TableInput):
        assert isinstance(model, NetModel)
        proto = _export_table(model, model.input, list_outputs(model))
    else:
        assert isinstance(model, NetModel)
        example = _make_example(model, 3)
        proto = _trace(_ArrayGraph(model), (torch.from_numpy(example),), [_name_input(model)], list_outputs(model))
    _add_metadata(proto, model)
    return proto, _measure_gap(proto.SerializeToString(), model)


def describe_signature(model: Model) -> str:
    """Say in words what the graph reads."""
    if not isinstance(model.input, TableInput):
        return f"{_name_input(model)} (row, {', '.join(map(str, model.input.shape))})"
    p = model.input
    parts = [f"numbers (row, {len(p.numeric)}): {list_some(p.numeric, MOST_NAMES)}"] if p.numeric else []
    parts += [f"categories (row, {len(p.vocabulary)}): {list_some(p.vocabulary, MOST_NAMES)}"] if p.vocabulary else []
    cut = max(len(p.numeric), len(p.vocabulary)) > MOST_NAMES
    return " and ".join(parts) + (" (all names, in order, are in its metadata, under seqdg)" if cut else "")


def make_feed(model: Model, x: Any) -> Feed:
    """Make what a session of onnxruntime reads from the same rows as the model reads."""
    if not isinstance(model.input, TableInput):
        return {_name_input(model): model.input.read(x)[0].numpy()}
    table = model.input
    raw, codes, _ = table.encode(x if isinstance(x, Frame) else make_frame(x))
    vocabularies = table.vocabulary.values()
    columns = [np.array([*known, ""], dtype=object)[code] for known, code in zip(vocabularies, codes.T, strict=True)]
    feed: Feed = {"numbers": raw} if table.numeric else {}
    return {**feed, "categories": np.stack(columns, axis=1)} if columns else feed


def _export_estimator(model: ArrayModel) -> tuple[Any, float]:
    """Export a fitted estimator behind the preprocessing, in the first precision that agrees with it."""
    assert isinstance(model.input, TableInput)  # these learners read nothing else
    assert isinstance(model.predict, FittedEstimator)
    table, reasons = model.input, []
    front, estimator = _export_table(None, table, [MATRIX]), model.predict.estimator
    is_of_trees = hasattr(estimator, "estimators_") or _is_boosting(estimator)
    for precision in ("float", "double") if is_of_trees else ("double", "float"):
        try:
            proto = copy.deepcopy(front)  # its only output is MATRIX
            scores = _append_estimator(proto, model.predict, table.shape[0], precision)
            _append_outputs(proto, model.predict, scores)
            _add_metadata(proto, model)
            return proto, _measure_gap(proto.SerializeToString(), model)
        except Exception as error:  # of a converter, or of onnxruntime: the other precision may do
            reasons.append(state_reason(error))
    raise UsageError(
        f"{model.name} cannot be written as ONNX ({reasons[0]}). Keep the model as seqdg writes it, or choose another "
        "candidate."
    )


def _export_ensemble(model: EnsembleModel) -> Any:
    """Put the graphs of all members side by side, which read the same inputs, and average what they give."""
    from onnx import TensorProto, compose, helper, numpy_helper
    from onnx.parser import parse_node

    merged, outputs = None, list_outputs(model)
    lines: list[str] = []
    constants = {"ensemble_least": np.array(FLOOR / max(1, len(model.classes)))}
    for i, (member, its) in enumerate(model.members):
        name, own = f"m{i}_", f"ensemble_{i}_"
        proto = compose.add_prefix(_export(member)[0], name, rename_inputs=False)
        if merged is None:
            merged = copy.deepcopy(proto)
            for field in ("node", "initializer", "value_info", "output"):
                del getattr(merged.graph, field)[:]
            del merged.metadata_props[:]
        for field in ("node", "initializer", "value_info"):
            getattr(merged.graph, field).extend(getattr(proto.graph, field))
        for imported in proto.opset_import:
            _use_opset(merged, imported.domain, imported.version)
        constants |= {f"{own}weight": np.array(its.weight), f"{own}factor": np.array(1 / its.temperature)}
        lines.append(f"{own}double = Cast <to = {TensorProto.DOUBLE}> ({name}{outputs[-1]})")
        told = f"{own}double"
        if not model.is_regression:  # as `calibrate` does
            lines += [f"{own}above = Max ({told}, ensemble_least)", f"{own}log = Log ({own}above)",
                      f"{own}cooled = Mul ({own}log, {own}factor)",
                      f"{own}calibrated = Softmax <axis = 1> ({own}cooled)"]  # fmt: skip
            told = f"{own}calibrated"
        lines.append(f"{own}part = Mul ({told}, {own}weight)")
    parts = ", ".join(f"ensemble_{i}_part" for i in range(len(model.members)))
    lines.append(f"{outputs[-1]} = Sum ({parts})")
    if not model.is_regression:
        lines.append("logits = Log (probabilities)")
    assert merged is not None
    merged.graph.node.extend(map(parse_node, lines))
    merged.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    shape = ["row"] if model.is_regression else ["row", len(model.classes)]
    merged.graph.output.extend(helper.make_tensor_value_info(o, TensorProto.DOUBLE, shape) for o in outputs)
    return merged


def _export_table(model: NetModel | None, table: TableInput, outputs: list[str]) -> Any:
    k, m = len(table.numeric), len(table.vocabulary)
    numbers = torch.zeros(3, k, dtype=torch.float64) if k else None
    codes = torch.zeros(3, m, dtype=torch.int64) if m else None
    names = [name for name, tensor in (("numbers", numbers), ("codes", codes)) if tensor is not None]
    proto = _trace(_TableGraph(model, table), (numbers, codes), names, outputs)
    if m:
        _prepend_lookup(proto, table)
    return proto


def _trace(graph: nn.Module, example: tuple[Tensor | None, ...], names: list[str], outputs: list[str]) -> Any:
    """Export a module by running it on an example; the number of rows stays open."""
    rows = torch.export.Dim.DYNAMIC
    shapes = tuple(None if tensor is None else {0: rows} for tensor in example)
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with refuse_broken("The neural network cannot be written as ONNX"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about torch
            program = torch.onnx.export(
                graph.eval(), example, input_names=names, output_names=outputs,
                dynamic_shapes=shapes, dynamo=True, verbose=False,
            )  # fmt: skip
    finally:
        quiet.setLevel(level)
    assert program is not None
    return program.model_proto


def _prepend_lookup(proto: Any, table: TableInput) -> None:
    """Put a LabelEncoder per column in front of the graph, which turns categories into their indices."""
    from onnx import TensorProto, helper

    graph = proto.graph
    old = next(i for i in graph.input if i.name == "codes")
    rows = old.type.tensor_type.shape.dim[0].dim_param
    nodes, parts = [], []
    for j, known in enumerate(table.vocabulary.values()):
        graph.initializer.append(helper.make_tensor(f"column_{j}", TensorProto.INT64, [1], [j]))
        nodes.append(helper.make_node("Gather", ["categories", f"column_{j}"], [f"words_{j}"], axis=1))
        nodes.append(
            helper.make_node(
                "LabelEncoder", [f"words_{j}"], [f"codes_{j}"], domain=ML[0], default_int64=-1,
                keys_strings=list(known) or ["\0"], values_int64s=list(range(len(known))) or [-1],
            )
        )  # fmt: skip
        parts.append(f"codes_{j}")
    nodes.append(helper.make_node("Concat", parts, ["codes"], axis=1))
    categories = helper.make_tensor_value_info("categories", TensorProto.STRING, [rows, len(parts)])
    graph.input.remove(old)
    graph.input.append(categories)
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    _use_opset(proto, *ML)


def _add_metadata(proto: Any, model: Model) -> None:
    about = {"classes": model.classes.tolist(), "input": model.input.describe(), "algorithm": model.name}
    entry = proto.metadata_props.add()
    entry.key, entry.value = "seqdg", json.dumps(about)
    proto.doc_string = __doc__ or ""


def _measure_gap(content: bytes, model: Model) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    gap = 0.0
    for rows in (1, 7, 64):  # another number of rows than it was traced with
        x = _make_example(model, rows)
        outputs, scale = model.compute_logits(x)[0], 1.0
        expected = outputs[:, 0] if model.is_regression else softmax(outputs, axis=1)
        if model.is_regression and isinstance(model, NetModel):
            scale = max(model.target[1], 1e-3 * abs(model.target[0]))
        elif model.is_regression:
            scale = max(float(np.abs(expected).max()), 1e-300)
        exported = session.run(list_outputs(model)[-1:], make_feed(model, x))[0]
        gap = max(gap, float(np.abs(exported - expected).max()) / scale)
    if not gap <= TOLERANCE:
        raise UsageError(f"The ONNX form differs from the model by {gap:.1e} in a prediction: it was not written.")
    return gap


def _make_example(model: Model, rows: int) -> Any:
    """Draw rows like those of the training data, missing values and unknown categories among them."""
    draw = np.random.Generator(np.random.Philox(rows))
    if isinstance(model.input, TableInput):
        return _make_example_table(model.input, rows, draw)
    if isinstance(model.input, ImageInput):
        return draw.integers(0, 256, size=(rows, *model.input.shape), dtype=np.uint8)
    return draw.standard_normal((rows, *model.input.shape)).astype(np.float32)


def _make_example_table(table: TableInput, rows: int, draw: np.random.Generator) -> Any:
    columns: dict[str, NDArray[Any]] = {}
    for name in table.dates:
        days = draw.integers(0, 20_000, rows).astype("M8[D]").astype("M8[us]")
        days[draw.random(rows) < 0.1] = np.datetime64("NaT")
        columns[name] = days
    for i, name in enumerate(table.numeric):
        mean, factor = table.scaling.mean.numpy()[i], table.scaling.factor.numpy()[i]
        with np.errstate(over="ignore"):
            values = mean + draw.standard_normal(rows) / (factor or 1.0)
        values = np.where(np.isfinite(values), values, 0.0)
        values[draw.random(rows) < 0.1] = np.nan
        columns[name] = values
    for name, known in table.vocabulary.items():
        columns[name] = np.array([*known, None, "\1 never seen"], dtype=object)[
            draw.integers(len(known) + 2, size=rows)
        ]
    return Frame(table.names, tuple(columns[name] for name in table.names), table.named)


def _name_input(model: Model) -> str:
    return "images" if isinstance(model.input, ImageInput) else "x"


def _require_onnx() -> None:
    if any(find_spec(name) is None for name in ("onnx", "onnxruntime", "onnxscript", "skl2onnx")):
        raise UsageError("Writing and checking ONNX files needs more packages: pip install 'seqdg[onnx]'.")


def _is_boosting(estimator: Any) -> bool:
    return isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)


def _append_estimator(proto: Any, fitted: FittedEstimator, width: int, precision: str) -> str:
    """Append the estimator, and return the name of its scores (row, class met) or (row, 1)."""
    from onnx import TensorProto, compose, helper

    graph = proto.graph
    graph.node.append(helper.make_node("Cast", [MATRIX], ["single"], to=TensorProto.FLOAT))  # as rows of training were
    if _is_boosting(fitted.estimator):
        graph.node.append(_make_boosting(fitted.estimator))
        _use_opset(proto, *ML)
        return "scores"
    entering = "single"
    if precision == "double":
        graph.node.append(helper.make_node("Cast", ["single"], ["widened"], to=TensorProto.DOUBLE))
        entering = "widened"
    opset = max((o.version for o in proto.opset_import if not o.domain), default=1)
    converted = compose.add_prefix(_convert(fitted, width, precision, opset), "sk_")
    graph.node.append(helper.make_node("Identity", [entering], [converted.graph.input[0].name]))
    graph.node.extend(converted.graph.node)
    graph.initializer.extend(converted.graph.initializer)
    for imported in converted.opset_import:
        _use_opset(proto, imported.domain, imported.version)
    return str(converted.graph.output[-1].name)


def _convert(fitted: FittedEstimator, width: int, precision: str, opset: int) -> Any:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    estimator = fitted.estimator
    kind = FloatTensorType if precision == "float" else DoubleTensorType
    options: dict[str, bool] = {}
    if fitted.classes:
        options = {"zipmap": False} if hasattr(estimator, "predict_proba") else {"raw_scores": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of skl2onnx about itself
        return to_onnx(
            estimator,
            initial_types=[("X", kind([None, width]))],
            options={id(estimator): options} if options else None,
            target_opset={"": opset, ML[0]: ML[1]},
        )


def _make_boosting(estimator: Any) -> Any:
    """Write the trees as one node, from rows of single precision to raw scores (row, tree of a round)."""
    from onnx import helper

    rounds = private.list_boosted_trees(estimator)
    sizes = [len(tree.nodes) for trees in rounds for tree in trees]
    nodes = np.concatenate([tree.nodes for trees in rounds for tree in trees])
    trees, numbers = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(size) for size in sizes])
    leaf = nodes["is_leaf"].astype(bool)
    columns = {
        "nodes_treeids": trees,
        "nodes_nodeids": numbers,
        "nodes_featureids": np.where(leaf, 0, nodes["feature_idx"]),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ"),
        "nodes_values": _round_down(np.where(leaf, 0.0, nodes["num_threshold"])),
        "nodes_truenodeids": np.where(leaf, 0, nodes["left"]),
        "nodes_falsenodeids": np.where(leaf, 0, nodes["right"]),
        "nodes_missing_value_tracks_true": nodes["missing_go_to_left"],
        "target_treeids": trees[leaf],
        "target_nodeids": numbers[leaf],
        "target_ids": trees[leaf] % len(rounds[0]),
        "target_weights": nodes["value"][leaf],
        "base_values": np.ravel(private.get_boosting_start(estimator)),
    }
    return helper.make_node(
        "TreeEnsembleRegressor", ["single"], ["scores"], domain=ML[0], n_targets=len(rounds[0]), post_transform="NONE",
        aggregate_function="SUM", **{name: values.tolist() for name, values in columns.items()},
    )  # fmt: skip


def _round_down(thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest numbers of single precision that are not above: single rows then fall on the same side."""
    nearest = thresholds.astype(np.float32)
    lower = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest <= thresholds, nearest, lower).astype(np.float64)


def _append_outputs(proto: Any, fitted: FittedEstimator, scores: str) -> None:
    """Append what makes logits and probabilities (row, class), or a prediction (row,), of the scores."""
    from onnx import TensorProto, helper, numpy_helper
    from onnx.parser import parse_node

    graph, met = proto.graph, len(fitted.labels)
    lines = [f"wide = Cast <to = {TensorProto.DOUBLE}> ({scores})"]
    if not fitted.classes:
        lines.append("prediction = Reshape (wide, flat)")
        constants, outputs = {"flat": np.array([-1])}, ["prediction"]
    else:
        spread = np.zeros((met, fitted.classes))
        spread[np.arange(met), fitted.labels] = 1.0
        constants = {"spread": spread, "least": np.array(1e-12), "most": np.array(1.0)}
        if not _is_boosting(fitted.estimator) and hasattr(fitted.estimator, "predict_proba"):
            lines.append("p_met = Identity (wide)")
        elif met == 2:
            constants["last"] = np.array([-1])
            lines += ["second = Gather <axis = 1> (wide, last)", "p_second = Sigmoid (second)"]
            lines += ["p_first = Sub (most, p_second)", "p_met = Concat <axis = 1> (p_first, p_second)"]
        else:
            lines.append("p_met = Softmax <axis = 1> (wide)")
        lines += ["p_all = MatMul (p_met, spread)", "p_limited = Clip (p_all, least, most)", "logits = Log (p_limited)"]
        lines.append("probabilities = Softmax <axis = 1> (logits)")
        outputs = ["logits", "probabilities"]
    graph.node.extend(map(parse_node, lines))
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del graph.output[:]
    shape = ["row", fitted.classes] if fitted.classes else ["row"]
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in outputs)


def _use_opset(proto: Any, domain: str, version: int) -> None:
    """Import an operator set, in the newest version that is asked for."""
    from onnx import helper

    for opset in proto.opset_import:
        if opset.domain == domain:
            opset.version = max(opset.version, version)
            return
    proto.opset_import.append(helper.make_opsetid(domain, version))
