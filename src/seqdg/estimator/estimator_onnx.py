"""A fitted estimator of scikit-learn as ONNX nodes behind a graph that makes its inputs.

skl2onnx converts the estimator, in double precision where it can. Gradient boosting on bins is written here: its trees
are compared in single precision, in which the rows were, so every threshold is rounded down.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from seqdg.base import UsageError
from seqdg.bench import FittedEstimator

MATRIX = "inputs_of_the_estimator"  # (row, input) double, what the graph in front gives
ML = ("ai.onnx.ml", 3)


class MissingPackage(UsageError):
    """An extra is not installed."""


def list_precisions(estimator: Any) -> tuple[str, ...]:
    """List the precisions in which it may be converted, the better first."""
    trees = hasattr(estimator, "estimators_") or is_boosting(estimator)
    return ("float", "double") if trees else ("double", "float")


def attach_estimator(front: Any, fitted: FittedEstimator, width: int, precision: str) -> Any:
    """Return a model that goes on from MATRIX, the only output of the model in front, to the predictions."""
    proto = copy.deepcopy(front)
    _append_outputs(proto, fitted, _append_estimator(proto, fitted, width, precision))
    return proto


def is_boosting(estimator: Any) -> bool:
    return isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)


def _append_estimator(proto: Any, fitted: FittedEstimator, width: int, precision: str) -> str:
    """Append the estimator, and return the name of its scores (row, class met) or (row, 1)."""
    from onnx import TensorProto, helper

    graph = proto.graph
    graph.node.append(helper.make_node("Cast", [MATRIX], ["single"], to=TensorProto.FLOAT))  # as rows of training were
    if is_boosting(fitted.estimator):
        graph.node.append(_make_boosting(fitted.estimator))
        _use_opset(proto, *ML)
        return "scores"
    entering = "single"
    if precision == "double":
        graph.node.append(helper.make_node("Cast", ["single"], ["widened"], to=TensorProto.DOUBLE))
        entering = "widened"
    converted = _convert(fitted, width, precision, _find_opset(proto, ""))
    names = {i.name: entering for i in converted.graph.input}
    for part in converted.graph.initializer:
        names[part.name] = f"sk.{part.name}"
        part.name = names[part.name]
        graph.initializer.append(part)
    for node in converted.graph.node:
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                field[i] = names.setdefault(name, f"sk.{name}") if name else ""
        node.name = f"sk.{node.name}"
        graph.node.append(node)
    for opset in converted.opset_import:
        _use_opset(proto, opset.domain, opset.version)
    return names[converted.graph.output[-1].name]


def _convert(fitted: FittedEstimator, width: int, precision: str, opset: int) -> Any:
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    except ImportError:
        raise MissingPackage(
            "Models of scikit-learn are written as ONNX by skl2onnx: pip install 'seqdg[sklearn-models]'."
        ) from None
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

    nodes: dict[str, list[Any]] = {name: [] for name in (
        "treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
        "missing_value_tracks_true", "hitrates",
    )}  # fmt: skip
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    number = 0
    for trees in estimator._predictors:
        for target, tree in enumerate(trees):
            for place, node in enumerate(tree.nodes):
                is_leaf = bool(node["is_leaf"])
                values = (
                    number, place, 0 if is_leaf else int(node["feature_idx"]), "LEAF" if is_leaf else "BRANCH_LEQ",
                    0.0 if is_leaf else _round_down(float(node["num_threshold"])),
                    0 if is_leaf else int(node["left"]), 0 if is_leaf else int(node["right"]),
                    int(node["missing_go_to_left"]), 1.0,
                )  # fmt: skip
                for name, value in zip(nodes, values, strict=True):
                    nodes[name].append(value)
                if is_leaf:
                    for name, value in zip(leaves, (number, place, target, float(node["value"])), strict=True):
                        leaves[name].append(value)
            number += 1
    return helper.make_node(
        "TreeEnsembleRegressor", ["single"], ["scores"], domain=ML[0], n_targets=len(estimator._predictors[0]),
        base_values=[float(v) for v in np.ravel(estimator._baseline_prediction)], post_transform="NONE",
        aggregate_function="SUM", **{f"nodes_{name}": values for name, values in nodes.items()},
        **{f"target_{name}": values for name, values in leaves.items()},
    )  # fmt: skip


def _round_down(threshold: float) -> float:
    """Return the largest number of single precision that is not above it: single rows then fall on the same side."""
    nearest = np.float32(threshold)
    return float(nearest if float(nearest) <= threshold else np.nextafter(nearest, np.float32(-np.inf)))


def _append_outputs(proto: Any, fitted: FittedEstimator, scores: str) -> None:
    """Append what makes logits and probabilities (row, class), or a prediction (row,), of the scores."""
    from onnx import TensorProto, helper, numpy_helper

    graph = proto.graph

    def add(kind: str, *inputs: str, output: str, **attributes: Any) -> str:
        graph.node.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(name: str, value: Any) -> str:
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    wide = add("Cast", scores, output="wide", to=TensorProto.DOUBLE)
    del graph.output[:]
    if not fitted.classes:
        add("Reshape", wide, constant("flat", np.array([-1], np.int64)), output="prediction")
        graph.output.append(helper.make_tensor_value_info("prediction", TensorProto.DOUBLE, ["row"]))
        return
    met = len(fitted.labels)
    if is_boosting(fitted.estimator) or not hasattr(fitted.estimator, "predict_proba"):
        if met == 2:
            last = add("Gather", wide, constant("last", np.array([-1], np.int64)), output="last_score", axis=1)
            p = add("Sigmoid", last, output="p_second")
            rest = add("Sub", constant("one", 1.0), p, output="p_first")
            wide = add("Concat", rest, p, output="p_met", axis=1)
        else:
            wide = add("Softmax", wide, output="p_met", axis=1)
    spread = np.zeros((met, fitted.classes))
    spread[np.arange(met), fitted.labels] = 1.0
    everywhere = add("MatMul", wide, constant("spread", spread), output="p_all")
    limited = add("Clip", everywhere, constant("least", 1e-12), constant("most", 1.0), output="p_limited")
    add("Log", limited, output="logits")
    add("Softmax", "logits", output="probabilities", axis=1)
    for name in ("logits", "probabilities"):
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["row", fitted.classes]))


def _find_opset(proto: Any, domain: str) -> int:
    return max((o.version for o in proto.opset_import if o.domain == domain), default=1)


def _use_opset(proto: Any, domain: str, version: int) -> None:
    """Import an operator set, in the newest version that is asked for."""
    from onnx import helper

    for opset in proto.opset_import:
        if opset.domain == domain:
            opset.version = max(opset.version, version)
            return
    proto.opset_import.append(helper.make_opsetid(domain, version))
