"""From a user's own rows, labels and domains to a model: the scikit-learn interface, model files, predictions, ONNX."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.estimator.domain_estimator import DomainClassifier, DomainEstimator, DomainRegressor, load_estimator
    from seqdg.estimator.model_card import render_card
    from seqdg.estimator.model_file import check_destination, check_saving, read_description, read_model
    from seqdg.estimator.onnx_export import describe_signature, export_onnx, list_outputs
    from seqdg.estimator.prediction import predict_file

__getattr__, __dir__ = open_front(__name__)
