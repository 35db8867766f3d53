"""From a user's own rows, labels and domains to a model: the scikit-learn interface, model files, predictions, ONNX."""

from typing import TYPE_CHECKING

from seqdg.base.front_door import open_front_door

if TYPE_CHECKING:
    from seqdg.estimator.analysis import load_estimator, write_analysis
    from seqdg.estimator.candidates import ALL_USUAL, NETS
    from seqdg.estimator.card import render_card
    from seqdg.estimator.choose import DoubtfulChoice, compare, count_workers, fit_and_estimate
    from seqdg.estimator.classifier import DomainClassifier, DomainGeneralizer
    from seqdg.estimator.comparison import Comparison
    from seqdg.estimator.curve_training import learning_curve
    from seqdg.estimator.domain_curve import LearningCurve
    from seqdg.estimator.estimator import DomainEstimator
    from seqdg.estimator.held_out_scores import Winner
    from seqdg.estimator.kept_records import count_kept, remove_kept
    from seqdg.estimator.model import Model
    from seqdg.estimator.model_file import check_place, check_saving, read_description, read_model, write_model
    from seqdg.estimator.onnx import describe_signature, export_onnx, list_outputs
    from seqdg.estimator.permutation import Importance, importance
    from seqdg.estimator.predict import predict_file
    from seqdg.estimator.regressor import DomainRegressor
    from seqdg.estimator.searches import parse_settings_texts

__all__ = [
    "ALL_USUAL",
    "NETS",
    "Comparison",
    "DomainClassifier",
    "DomainEstimator",
    "DomainGeneralizer",
    "DomainRegressor",
    "DoubtfulChoice",
    "Importance",
    "LearningCurve",
    "Model",
    "Winner",
    "check_place",
    "check_saving",
    "compare",
    "count_kept",
    "count_workers",
    "describe_signature",
    "export_onnx",
    "fit_and_estimate",
    "importance",
    "learning_curve",
    "list_outputs",
    "load_estimator",
    "parse_settings_texts",
    "predict_file",
    "read_description",
    "read_model",
    "remove_kept",
    "render_card",
    "write_analysis",
    "write_model",
]

__getattr__, __dir__ = open_front_door(
    __name__,
    {
        "analysis": "load_estimator write_analysis",
        "candidates": "ALL_USUAL NETS",
        "card": "render_card",
        "choose": "DoubtfulChoice compare count_workers fit_and_estimate",
        "classifier": "DomainClassifier DomainGeneralizer",
        "comparison": "Comparison",
        "estimator": "DomainEstimator",
        "permutation": "Importance importance",
        "curve_training": "learning_curve",
        "domain_curve": "LearningCurve",
        "held_out_scores": "Winner",
        "model": "Model",
        "model_file": "check_place check_saving read_description read_model write_model",
        "onnx": "describe_signature export_onnx list_outputs",
        "predict": "predict_file",
        "regressor": "DomainRegressor",
        "kept_records": "count_kept remove_kept",
        "searches": "parse_settings_texts",
    },
)
