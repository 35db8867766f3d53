"""From a user's own rows, labels and domains to a model: the scikit-learn interface, model files, predictions, ONNX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqdg.estimator.card import render_card
    from seqdg.estimator.choose import compare, count_workers, fit_and_estimate, parse_settings_texts
    from seqdg.estimator.classifier import DomainGeneralizer
    from seqdg.estimator.comparison import Comparison, Winner
    from seqdg.estimator.model import Model
    from seqdg.estimator.model_file import check_place, read_description, read_model, write_model
    from seqdg.estimator.onnx import describe_signature, export_onnx
    from seqdg.estimator.predict import predict_file

__all__ = [
    "Comparison",
    "DomainGeneralizer",
    "Model",
    "Winner",
    "check_place",
    "compare",
    "count_workers",
    "describe_signature",
    "export_onnx",
    "fit_and_estimate",
    "parse_settings_texts",
    "predict_file",
    "read_description",
    "read_model",
    "render_card",
    "write_model",
]

# Where each name is defined. It is imported when it is first used.
_MODULES = {
    "Comparison": "comparison",
    "DomainGeneralizer": "classifier",
    "Model": "model",
    "Winner": "comparison",
    "check_place": "model_file",
    "compare": "choose",
    "count_workers": "choose",
    "describe_signature": "onnx",
    "export_onnx": "onnx",
    "fit_and_estimate": "choose",
    "parse_settings_texts": "choose",
    "predict_file": "predict",
    "read_description": "model_file",
    "read_model": "model_file",
    "render_card": "card",
    "write_model": "model_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqdg.estimator' has no attribute '{name}'")
    return getattr(import_module(f"seqdg.estimator.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
