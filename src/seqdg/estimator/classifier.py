"""The scikit-learn interface: `DomainGeneralizer`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from seqdg.base.errors import UsageError
from seqdg.core.algorithm import Algorithm
from seqdg.data import Frame
from seqdg.estimator.inputs import TableInput
from seqdg.estimator.model import Model, compute_softmax
from seqdg.estimator.model_file import read_model, write_model
from seqdg.estimator.recipe import Recipe, draw_seed, make_recipe, read_parameters
from seqdg.estimator.train import fit_model
from seqdg.estimator.user_data import make_user_data, read_input, read_labels
from seqdg.nets import NetSpec


class DomainGeneralizer(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is trained on several known domains to work on one it has never seen.

    X: a data frame (columns of numbers and of words, with gaps), a matrix, images (row, channel, height, width) as
    bytes or floats in [0, 1], or arrays of any other shape for a net of your own.

    algorithm: a name of `seqdg.list_algorithms()`, alone or with wrappers ('fo-s-mldg+ema'), or what `seqdg.build`
        returns.   settings: its settings by name.
    net: 'mlp', 'resnet18', ... or your own nn.Module, which returns a logit per class. Training starts from its
        weights; those with requires_grad=False stay as they are. None: an mlp for tables, EfficientNet-Lite0 with its
        ImageNet weights for images.   hidden: widths of the mlp.
    batchnorm: 'frozen', 'recalibrate', 'running', 'none'; 'auto' freezes nets that start from ImageNet weights, and
        yours where no BatchNorm has weights to train, and recalibrates others.
    steps, batch: of training; a step sees `batch` rows of every domain.
    optimizer, lr, momentum, weight_decay: 'adam', 'momentum', 'sgd', or 'auto' for the algorithm's own. With Adam it
        makes no difference whether a loss is a sum or a mean over domains, so one lr serves all algorithms.
    schedule: of the learning rate: 'constant', 'cosine' (falls to 0) or 'steps' (falls to a tenth three times).
    warmup: share of the steps over which the rate first rises.
    validation: share of every domain's rows that is not trained on; they choose the step whose weights are kept.
        0: train on all rows and keep the last step's.   evaluations: how many steps are compared.
    criterion: what the step is chosen by: accuracy, balanced_accuracy, log_loss, calibration_error, auroc (of two
        classes), macro_f1, worst_class or top5 (above five classes).
    stop: keep the weights after this many steps, whatever the validation says. The steps of a stage that comes on top
        of `steps`, as MetaReg's first does, count.
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
        schedule: str = "constant",
        warmup: float = 0.0,
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
        self.schedule = schedule
        self.warmup = warmup
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
        """Train on rows X with labels y. domains: a name or number for each row; None: all rows are of one domain."""
        recipe = self.make_recipe()
        x, labels = read_input(X), read_labels(y)
        if len(x) != len(labels):
            raise UsageError(f"X has {len(x)} rows and y {len(labels)}: inconsistent numbers of samples.")
        self._set_model(fit_model(make_user_data(x, labels, domains, recipe), recipe))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every row."""
        logits = self._compute_logits(X)
        return self.model_.choose_classes(logits)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities (row, class), in the order of classes_."""
        return compute_softmax(self._compute_logits(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return logits (row, class); of two classes, the second's minus the first's (row,)."""
        logits = self._compute_logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def save(self, path: str | Path) -> None:
        """Write a directory: model.safetensors, model.json, card.md. Nothing in it is a pickle."""
        check_is_fitted(self, "model_")
        write_model(self.model_, Path(path))

    @classmethod
    def load(cls, path: str | Path, net: nn.Module | None = None, device: str = "auto") -> DomainGeneralizer:
        """Read what `save` wrote. net: your own module, if the model was trained with one; its weights are replaced."""
        from seqdg.training.device import choose_device

        model = read_model(Path(path), net, choose_device(device))
        estimator = cls(**{**read_parameters(model.facts["parameters"]), "net": net, "device": device})
        estimator._set_model(model)
        return estimator

    def add_facts(self, **facts: Any) -> None:
        """Add facts to those on the model's card."""
        check_is_fitted(self, "model_")
        self.model_ = self.model_.with_facts(**facts)

    def make_recipe(self) -> Recipe:
        """Check the parameters; a UsageError names the first that is wrong."""
        return make_recipe(self.get_params(deep=False), draw_seed(self.random_state))

    def _set_model(self, model: Model) -> None:
        facts = model.facts
        self.model_, self.classes_ = model, model.classes
        self.domains_ = np.array(list(facts["domains"]), dtype=object)
        self.step_, self.validation_ = facts["step"], facts["validation"]
        self.notes_ = list(facts["notes"])
        self.n_features_in_ = model.input.width
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(model.input, TableInput) and model.input.preprocessing.named:
            self.feature_names_in_ = np.array(model.input.preprocessing.names, dtype=object)

    def _compute_logits(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        logits, notes = self.model_.compute_logits(self._read_input(X))
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=3)
        return logits

    def _read_input(self, X: Any) -> Any:
        """Find columns by name where there are names, else by position, with the warnings that scikit-learn gives."""
        read = self.model_.input
        named = read.preprocessing.named if isinstance(read, TableInput) else False
        x = read_input(X, read.preprocessing.names if isinstance(read, TableInput) and named else None)
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
