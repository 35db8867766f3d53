"""From a user's own rows, labels and domains to a model: the scikit-learn interface, model files, predictions, ONNX."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.estimator.analysis import load_estimator, write_analysis
    from seqdg.estimator.card import render_card
    from seqdg.estimator.classifier import DomainClassifier, DomainGeneralizer
    from seqdg.estimator.curve_training import learning_curve
    from seqdg.estimator.domain_curve import LearningCurve
    from seqdg.estimator.estimator import DomainEstimator
    from seqdg.estimator.model import Model
    from seqdg.estimator.model_file import check_place, check_saving, read_description, read_model, write_model
    from seqdg.estimator.onnx import describe_signature, export_onnx, list_outputs
    from seqdg.estimator.permutation import Importance, importance
    from seqdg.estimator.predict import predict_file
    from seqdg.estimator.regressor import DomainRegressor

__getattr__, __dir__ = open_front(__name__)
