"""The common base of `DomainClassifier` and `DomainRegressor`: parameters, fitting, saving and loading."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from seqdg.base import UsageError, list_some
from seqdg.bench import FittedEstimator, list_learners
from seqdg.core import Algorithm
from seqdg.data import Frame, count_present
from seqdg.estimator.auto import adapt_recipe
from seqdg.estimator.inputs import TableInput
from seqdg.estimator.model import ArrayModel, Model
from seqdg.estimator.model_file import read_model, write_model
from seqdg.estimator.recipe import Recipe, draw_seed, make_recipe, read_parameters
from seqdg.estimator.sparse import is_sparse, split_sparse
from seqdg.estimator.train import fit_model
from seqdg.estimator.user_data import join_domains, make_user_data, read_input, warn_of_order
from seqdg.nets import NetSpec

MANY_ROWS = 10  # in all of which a gap is hardly chance
Kind = TypeVar("Kind", bound="DomainEstimator")


class DomainEstimator(BaseEstimator):  # type: ignore[misc]
    """A model of several known domains, as scikit-learn calls it: a subclass says what its targets are."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"domains": True, "groups": True}
    is_regressor: ClassVar[bool]  # whether it predicts numbers, and no classes
    model_: Model

    algorithm: str | Algorithm
    settings: dict[str, Any] | None
    net: str | NetSpec | nn.Module | None
    criterion: str
    lr: float
    random_state: Any

    def _keep_parameters(self, given: Mapping[str, Any]) -> None:
        """Keep what the constructor was given, as it is: scikit-learn wants every parameter as an attribute."""
        for name in self._get_param_names():
            setattr(self, name, given[name])

    def fit(self: Kind, X: Any, y: Any, domains: Any = None, sample_weight: Any = None, groups: Any = None) -> Kind:
        """Train on rows X with targets y.

        domains: a name or number for each row; None: all rows are of one domain.   groups: scikit-learn's word for it.
        sample_weight: (row,) how much each row counts, in training and in every score. Its mean is taken to be 1 within
            each domain: domains count the same whatever their rows weigh.
        """
        domains = join_domains(domains, groups)
        warn_of_order(X, y=y, domains=domains, sample_weight=sample_weight)
        recipe = self.make_recipe()
        x, targets = read_input(X), self.read_targets(y)
        if len(x) != len(targets):
            raise UsageError(f"X has {len(x)} rows and y {len(targets)}: inconsistent numbers of samples.")
        user_data = make_user_data(x, targets, domains, recipe, sample_weight=sample_weight)
        if domains is None:
            warnings.warn(
                "No domains were given, so that all rows count as one domain: give `domains`, a name for each row, "
                "such as its hospital, to learn what holds in all of them.",
                UserWarning,
                stacklevel=2,
            )
        self._set_model(fit_model(user_data, adapt_recipe(recipe, user_data.dataset)))
        return self

    @staticmethod
    def read_targets(y: Any) -> NDArray[Any]:
        """Return targets (row,), or raise a UsageError where a row has none."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write a directory: model.safetensors, model.json, card.md. Nothing in it is a pickle."""
        check_is_fitted(self, "model_")
        write_model(self.model_, Path(path))

    @classmethod
    def load(cls: type[Kind], path: str | Path, net: nn.Module | None = None, device: str = "auto") -> Kind:
        """Read what `save` wrote. net: your own module, if the model was trained with one; its weights are replaced."""
        from seqdg.training import choose_device

        model = read_model(Path(path), net, choose_device(device))
        if model.is_regression != cls.is_regressor:
            what = ("numbers", "DomainRegressor") if model.is_regression else ("classes", "DomainClassifier")
            raise UsageError(f"The model in {path} predicts {what[0]}: load it with {what[1]}.load.")
        described = {**read_parameters(model.facts["parameters"]), "net": net, "device": device}
        fitted = model.predict if isinstance(model, ArrayModel) else None
        if isinstance(fitted, FittedEstimator) and model.name not in list_learners():  # it was the user's own object
            described |= {"algorithm": clone(fitted.estimator), "settings": None}
        estimator = cls(**{name: described[name] for name in cls._get_param_names() if name in described})
        estimator._set_model(model)
        return estimator

    def add_facts(self, **facts: Any) -> None:
        """Add facts to those on the model's card."""
        check_is_fitted(self, "model_")
        self.model_ = self.model_.with_facts(**facts)

    def make_recipe(self) -> Recipe:
        """Check the parameters; a UsageError names the first that is wrong."""
        return make_recipe(self.get_params(deep=False), draw_seed(self.random_state), self.is_regressor)

    def _set_model(self, model: Model) -> None:
        facts = model.facts
        self.model_ = model
        self.domains_ = np.array(list(facts["domains"]), dtype=object)
        self.step_, self.validation_ = facts["step"], facts["validation"]
        self.notes_ = list(facts["notes"])
        self.n_features_in_ = model.input.width
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(model.input, TableInput) and model.input.preprocessing.named:
            self.feature_names_in_ = np.array(model.input.preprocessing.names, dtype=object)

    def _compute_outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        if is_sparse(X) and X.shape[0] and not self.model_.together:
            return np.concatenate([self._compute_dense(part) for part in split_sparse(X)])
        return self._compute_dense(X)

    def _compute_dense(self, X: Any) -> NDArray[np.float64]:
        logits, notes = self.model_.compute_logits(self._read_input(X))
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=4)
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
                stacklevel=5,
            )
        _look_for_empty_columns(x)
        return x

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _look_for_empty_columns(frame: Frame) -> None:
    """Raise a UsageError where no column holds a value; warn of one that is empty in all of many rows."""
    empty = [n for n, c in zip(frame.names, frame.columns, strict=True) if len(frame) and not count_present(c)]
    if empty and len(empty) == len(frame.names):
        raise UsageError("No column that the model reads holds any value: there is nothing to predict from.")
    if empty and len(frame) >= MANY_ROWS:
        warnings.warn(
            f"Columns without a value in all {len(frame)} rows: {list_some(empty)}. Is it the right table?",
            UserWarning,
            stacklevel=5,
        )
