"""The scikit-learn interface for numbers: `DomainRegressor`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from torch import nn

from seqdg.core import Algorithm
from seqdg.estimator.estimator import DomainEstimator
from seqdg.estimator.user_data import read_numbers
from seqdg.nets import NetSpec


class DomainRegressor(RegressorMixin, DomainEstimator):  # type: ignore[misc]
    """A model that predicts a number, trained on several known domains to work on one it has never seen.

    The numbers y are brought to mean 0 and deviation 1 for the training, and predictions are in the units of y. All
    parameters are those of `DomainClassifier`, without class_weight, but:

    algorithm: one that reads targets through the loss alone; others say that they need classes. Look-ahead steps
        along the slope of a squared loss, which grows with the error, want a small alpha (0.03 and below).
    net: your own nn.Module returns one number per row, (row, 1), in units of the deviation.
    loss: 'squared', 'absolute' or 'huber', of the difference in units of the deviation.
    criterion: what the step is chosen by: rmse, mae, r2 or pearson.

    After `fit`: domains_, step_, validation_ (metrics by domain), notes_, n_features_in_, feature_names_in_.
    """

    is_regressor = True

    def __init__(
        self,
        algorithm: str | Algorithm = "agg+ema",
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
        criterion: str = "rmse",
        loss: str = "squared",
        stop: int | None = None,
        members: int | str = "auto",
        image_size: int | None = None,
        augment: str = "",
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        self._keep_parameters(locals())

    read_targets = staticmethod(read_numbers)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return a number for every row, in the units of y."""
        return self._compute_outputs(X)[:, 0]
