"""The scikit-learn face: `DomainGeneralizer`."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from torch import Tensor, nn

from seqdg.base.errors import UsageError
from seqdg.core.algorithm import Algorithm
from seqdg.data.checks import check_labels
from seqdg.data.frame import Frame, NotAValue, is_dataframe, make_frame
from seqdg.estimator.facts import facts_of, read_parameters
from seqdg.estimator.inputs import TableInput
from seqdg.estimator.material import prepared
from seqdg.estimator.model import Model, probabilities
from seqdg.estimator.model_file import read_model, write_model
from seqdg.estimator.recipe import Recipe, recipe_of, seeded
from seqdg.estimator.train import fit_model
from seqdg.nets import NetSpec


class DomainGeneralizer(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is trained on several known domains to work on one it has never seen.

    X: a data frame (columns of numbers and of words, with gaps), a matrix, images (row, channel, height, width) as
    bytes or floats in [0, 1], or arrays of any other shape for a net of your own.

    algorithm: a name of `seqdg.list_algorithms()`, or what `seqdg.build` gives.   settings: of the algorithm, by name.
    net: 'mlp', 'resnet18', ... or your own nn.Module, which gives a logit per class and whose weights are the start,
        those with requires_grad=False to stay as they are; None: an mlp for tables, EfficientNet-Lite0 with its
        ImageNet weights for images.   hidden: widths of the mlp.
    batchnorm: 'frozen', 'recalibrate', 'none'; 'auto' freezes nets that start from ImageNet weights, and yours where
        no BatchNorm has weights to train.
    steps, batch: of training; a step sees `batch` rows of every domain.
    optimizer, lr, momentum, weight_decay: 'adam', 'momentum', 'sgd', or 'auto' for the algorithm's own. Adam does not
        mind whether a loss is a sum or a mean over domains, so one lr serves all algorithms.
    validation: share of every domain's rows that is not trained on, and by which the step is chosen whose weights are
        kept; 0: train on all rows and keep the last step's.   evaluations: how many steps are looked at.
    criterion: by which: accuracy, balanced_accuracy, log_loss, calibration_error or auroc.
    stop: keep the weights after this many of the `steps`, whatever the validation says.
    class_weight: None, 'balanced', or a weight by class.
    image_size: side of the images that enter the net.   augment: '' or 'pacs'.
    device: 'auto', 'cpu' or 'cuda'.   random_state: the same one gives the same model.

    After `fit`: classes_, domains_, step_, validation_ (metrics by domain), notes_, n_features_in_, feature_names_in_.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"domains": True}
    model_: Model

    def __init__(
        self,
        algorithm: str | Algorithm = "fo-s-mldg",
        *,
        settings: dict[str, Any] | None = None,
        net: str | NetSpec | nn.Module | None = None,
        hidden: tuple[int, ...] = (64, 32),
        batchnorm: str = "auto",
        steps: int = 500,
        batch: int = 32,
        optimizer: str = "adam",
        lr: float = 0.003,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        validation: float = 0.2,
        evaluations: int = 10,
        criterion: str = "accuracy",
        stop: int | None = None,
        class_weight: Any = None,
        image_size: int | None = None,
        augment: str = "",
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        self.algorithm = algorithm
        self.settings = settings
        self.net = net
        self.hidden = hidden
        self.batchnorm = batchnorm
        self.steps = steps
        self.batch = batch
        self.optimizer = optimizer
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.validation = validation
        self.evaluations = evaluations
        self.criterion = criterion
        self.stop = stop
        self.class_weight = class_weight
        self.image_size = image_size
        self.augment = augment
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, domains: Any = None) -> DomainGeneralizer:
        """domains: which one each row is from, as names or numbers; None: all rows are from one."""
        recipe = self.recipe()
        x, labels = checked_input(X), checked_labels(y)
        if len(x) != len(labels):
            raise UsageError(f"X has {len(x)} rows and y {len(labels)}: inconsistent numbers of samples.")
        material = prepared(x, labels, domains, recipe)
        fit = fit_model(material, recipe)
        self._take(fit.model.with_facts(**facts_of(material, recipe, fit)))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every row."""
        logits = self._logits(X)
        return np.asarray(self.classes_[logits.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(row, class), in the order of classes_."""
        return probabilities(self._logits(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logits (row, class); of two classes, the second's minus the first's (row,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def save(self, path: str | Path) -> None:
        """A directory: model.safetensors, model.json, card.md. Nothing in it is a pickle."""
        check_is_fitted(self, "model_")
        write_model(self.model_, Path(path))

    @classmethod
    def load(cls, path: str | Path, net: nn.Module | None = None, device: str = "auto") -> DomainGeneralizer:
        """What `save` wrote. net: your own module, where the model was trained with one; its weights are replaced."""
        from seqdg.training.device import choose_device

        model = read_model(Path(path), net, choose_device(device))
        found = cls(**{**read_parameters(model.facts), "net": net, "device": device})
        found._take(model)
        return found

    def add_facts(self, **facts: Any) -> None:
        """To what the model's card tells."""
        check_is_fitted(self, "model_")
        self.model_ = self.model_.with_facts(**facts)

    def recipe(self) -> Recipe:
        """The parameters, checked."""
        return recipe_of(self.get_params(deep=False), seeded(self.random_state))

    def _take(self, model: Model) -> None:
        facts = model.facts
        self.model_, self.classes_ = model, model.classes
        self.domains_ = np.array(list(facts["domains"]), dtype=object)
        self.step_, self.validation_ = facts["step"], facts["validation"]
        self.notes_ = list(facts["notes"])
        self.n_features_in_ = model.input.width
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(model.input, TableInput) and model.input.preprocessing.named:
            self.feature_names_in_ = np.array(model.input.preprocessing.names, dtype=object)

    def _logits(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        logits, notes = self.model_.logits(self._as_fitted(X))
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=3)
        return logits

    def _as_fitted(self, X: Any) -> Any:
        """Columns are found by name where there are names, else by position, as scikit-learn's estimators warn."""
        read = self.model_.input
        named = read.preprocessing.named if isinstance(read, TableInput) else False
        x = checked_input(X, read.preprocessing.names if isinstance(read, TableInput) and named else None)
        if not isinstance(x, Frame) or not isinstance(self.model_.input, TableInput):
            return x
        if not (named and x.named) and len(x.names) != self.n_features_in_:
            raise UsageError(
                f"X has {len(x.names)} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input."
            )
        if named != x.named:
            what = ("X does not have valid", "with") if named else ("X has", "without")
            warnings.warn(
                f"{what[0]} feature names, but {type(self).__name__} was fitted {what[1]} feature names",
                UserWarning,
                stacklevel=4,
            )
        return x

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def checked_input(x: Any, wanted: Collection[str] | None = None) -> Any:
    """A Frame of what is a table (of named columns only those wanted); anything else of more dimensions as it is."""
    if isinstance(x, Frame):
        return x
    if is_dataframe(x):
        if not all(x.shape):
            raise UsageError(f"The table has {x.shape[0]} rows and {x.shape[1]} columns: there is nothing to read.")
        return make_frame(x, wanted)
    if isinstance(x, Tensor):
        x = x.detach().cpu().numpy()
    if hasattr(x, "toarray"):
        raise NotAValue("Sparse data was passed as X, but dense data is required: give X.toarray().")
    if not hasattr(x, "shape"):
        x = np.asarray(x)
    if len(x.shape) > 2:
        return x
    try:
        array = check_array(x, dtype=None, ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    return make_frame(array)


def checked_labels(y: Any) -> NDArray[Any]:
    """(row,) with a label for every row."""
    if y is None:
        raise UsageError("requires y to be passed, but the target y is None: give a label for every row.")
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    try:
        labels = np.asarray(column_or_1d(y, warn=True))
        if labels.dtype.kind not in "iub":
            check_labels(labels.tolist())
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise UsageError("Input y contains infinity: labels are words or whole numbers.")
        check_classification_targets(labels)
        np.unique(labels)
    except UsageError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    return labels
