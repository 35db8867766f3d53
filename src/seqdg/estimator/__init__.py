"""From a user's own rows, labels and domains to a model: the scikit-learn interface, model files, predictions, ONNX.

Also which columns transfer, and whether one more domain would help.
"""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.estimator.column_importance import Importance, importance
    from seqdg.estimator.domain_curve import LearningCurve, learning_curve, write_analysis
    from seqdg.estimator.domain_estimator import DomainClassifier, DomainEstimator, DomainRegressor, load_estimator
    from seqdg.estimator.model import check_destination, check_saving, read_model
    from seqdg.estimator.model_card import check_files, read_description, render_card
    from seqdg.estimator.model_report import write_model_report
    from seqdg.estimator.onnx_export import describe_signature, export_onnx, list_outputs
    from seqdg.estimator.prediction import predict_file
    from seqdg.estimator.recipe import IMAGE_NET

__getattr__, __dir__ = open_front(__name__)
