"""The scikit-learn interface for classes: `DomainClassifier`, whose old name is `DomainGeneralizer`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from torch import nn

from seqdg.core import Algorithm
from seqdg.estimator.estimator import DomainEstimator
from seqdg.estimator.model import Model, compute_softmax
from seqdg.estimator.user_data import read_labels
from seqdg.nets import NetSpec


class DomainClassifier(ClassifierMixin, DomainEstimator):  # type: ignore[misc]
    """A classifier that is trained on several known domains to work on one it has never seen.

    X: a data frame (columns of numbers and of words, with gaps), a matrix, images (row, channel, height, width) as
    bytes or floats in [0, 1], or arrays of any other shape for a net of your own.

    algorithm: a name of `seqdg.list_algorithms()`, alone or with wrappers ('fo-s-mldg+ema'), or what `seqdg.build`
        returns.   settings: its settings by name.
    net: 'mlp', 'resnet18', ... or your own nn.Module, which returns a logit per class. Training starts from its
        weights; those with requires_grad=False stay as they are. None: an mlp for tables, EfficientNet-Lite0 with its
        ImageNet weights for images.   hidden: widths of the mlp; 'auto': by the number of rows.
    batchnorm: 'frozen', 'recalibrate', 'running', 'none'; 'auto' freezes nets that start from ImageNet weights, and
        yours where no BatchNorm has weights to train, and recalibrates others.
    steps, batch: of training; a step sees `batch` rows of every domain that it meets. steps 'auto': as many as
        meet every row three times, from 500 to 5000 (images: 500).
    domains_per_step: how many of the domains a step meets, drawn at random; 0: all. 'auto': 8 of more, where the
        algorithm can do with some.
    optimizer, lr, momentum, weight_decay: 'adam', 'momentum', 'sgd', or 'auto' for the algorithm's own. With Adam it
        makes no difference whether a loss is a sum or a mean over domains, so one lr serves all algorithms.
    scaling: of a table's numbers: 'quantile' (the normal score of a value's place among those seen, so that neither the
        shape of a column nor values far away matter) or 'standard' (mean 0, deviation 1).
    schedule: of the learning rate: 'constant', 'cosine' (falls to 0) or 'steps' (falls to a tenth three times).
    warmup: share of the steps over which the rate first rises.
    validation: share of every domain's rows that is not trained on; they choose the step whose weights are kept.
        0: train on all rows and keep the last step's.   evaluations: how many steps are compared.
    criterion: what the step is chosen by: accuracy, balanced_accuracy, log_loss, calibration_error, auroc (of two
        classes), macro_f1, worst_class or top5 (above five classes).
    stop: keep the weights after this many steps, whatever the validation says. The steps of a stage that comes on top
        of `steps`, as MetaReg's first does, count.
    members: how many nets are trained, from other seeds, as one stack; their probabilities are averaged (a deep
        ensemble). 'auto': 4 for a table, 1 for images and for a net of your own. Of k members those of random_state s
        start from the seeds k s to k s + k - 1.
    calibrate: divide logits by a temperature that fits the validation rows (`seqdg.training.calibration`). No
        prediction changes, only how sure it is.
    class_weight: None, 'balanced', or a weight by class.
    image_size: side of the images that enter the net.   augment: '' or 'pacs'.
    device: 'auto', 'cpu' or 'cuda'.   random_state: the same one gives the same model.

    After `fit`: classes_, domains_, step_, validation_ (metrics by domain), notes_, n_features_in_, feature_names_in_.
    """

    is_regressor = False

    def __init__(
        self,
        algorithm: str | Algorithm = "fo-s-mldg+ema",
        *,
        settings: dict[str, Any] | None = None,
        net: str | NetSpec | nn.Module | None = None,
        hidden: tuple[int, ...] | str = "auto",
        batchnorm: str = "auto",
        steps: int | str = "auto",
        batch: int = 32,
        domains_per_step: int | str = "auto",
        optimizer: str = "adam",
        lr: float = 0.003,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        scaling: str = "quantile",
        schedule: str = "constant",
        warmup: float = 0.0,
        validation: float = 0.2,
        evaluations: int = 10,
        criterion: str = "accuracy",
        stop: int | None = None,
        members: int | str = "auto",
        calibrate: bool = True,
        class_weight: Any = None,
        image_size: int | None = None,
        augment: str = "",
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        self._keep_parameters(locals())

    read_targets = staticmethod(read_labels)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every row."""
        logits = self._compute_outputs(X)
        return self.model_.choose_classes(logits)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (row, class), in the order of classes_."""
        return compute_softmax(self._compute_outputs(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return logits (row, class); of two classes, the second's minus the first's (row,)."""
        logits = self._compute_outputs(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def _set_model(self, model: Model) -> None:
        super()._set_model(model)
        self.classes_ = model.classes


DomainGeneralizer = DomainClassifier
