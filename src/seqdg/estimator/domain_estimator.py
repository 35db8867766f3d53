"""The scikit-learn interface: `DomainClassifier` and `DomainRegressor`, and what they share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from seqdg.base import UsageError, choose_device, count_files, list_some
from seqdg.bench import FittedEstimator, list_learners
from seqdg.core import Algorithm
from seqdg.data import Features, FeatureSource, Frame, count_present, extract_features, replace_text
from seqdg.estimator.fitting import fit_ensemble, fit_model
from seqdg.estimator.model import (
    ArrayModel,
    EnsembleModel,
    Model,
    check_features,
    read_model,
    require_backbone,
    write_model,
)
from seqdg.estimator.model_inputs import TableInput
from seqdg.estimator.recipe import (
    Recipe,
    WeightedEnsemble,
    Winner,
    adapt_recipe,
    draw_seed,
    make_recipe,
    read_parameters,
    read_settings,
)
from seqdg.estimator.shifts import check_label_shift, correct_label_shift
from seqdg.estimator.user_data import (
    UserData,
    join_domains,
    make_user_data,
    read_input,
    split_sparse,
)
from seqdg.nets import NetSpec

MANY_ROWS = 10  # a column that is empty in all of so many rows is hardly chance
Kind = TypeVar("Kind", bound="DomainEstimator")


@dataclass(eq=False, repr=False)
class DomainEstimator(BaseEstimator):  # type: ignore[misc]
    """Fit, save and load a model of several known domains. A subclass says what its targets are."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"domains": True, "groups": True}
    is_regressor: ClassVar[bool]
    model_: Model = field(init=False)

    algorithm: str | Algorithm | WeightedEnsemble
    _: KW_ONLY
    settings: dict[str, Any] | None = None
    net: str | NetSpec | nn.Module | None = None
    hidden: tuple[int, ...] | str = "auto"
    batchnorm: str = "auto"
    steps: int | str = "auto"
    batch: int = 32
    domains_per_step: int | str = "auto"
    optimizer: str = "adam"
    lr: float = 0.003
    momentum: float = 0.9
    weight_decay: float = 1e-3
    scaling: str = "quantile"
    schedule: str = "constant"
    warmup: float = 0.0
    validation: float = 0.2
    evaluations: int = 10
    criterion: str
    stop: int | None = None
    members: int | str = "auto"
    image_size: int | None = None
    augment: str = ""
    device: str = "auto"
    random_state: Any = 0
    verbose: int = 1

    def fit(self: Kind, X: Any, y: Any, domains: Any = None, sample_weight: Any = None, groups: Any = None) -> Kind:
        """Train on the rows of all domains.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs.
        y : array of shape (row,)
            The labels, or the regression targets.
        domains : array of shape (row,) or str, optional
            The name or number of each row's domain, or the column of the data frame X that holds it. By default all
            rows are of one domain.
        sample_weight : array of shape (row,), optional
            How much each row counts, in training and in every score. Weights are scaled to a mean of 1 within each
            domain, so that domains count the same whatever their rows weigh.
        groups : array of shape (row,), optional
            Another name for `domains`, the one that scikit-learn's splitters use.

        Returns
        -------
        self
        """
        domains = join_domains(domains, groups)
        members = self._list_members()
        recipe = members[0][1] if members else self.make_recipe()
        user_data = make_user_data(X, y, domains, recipe, keep_missing=bool(members), sample_weight=sample_weight)
        if domains is None:
            warnings.warn(
                "No domains were given, so all rows count as one domain. Pass `domains`, a name for each row such as "
                "its hospital, to learn what holds in all of them.",
                UserWarning,
                stacklevel=2,
            )
        with count_files("fitting", quiet=not self.verbose) as on_progress:
            if members:
                self._set_model(fit_ensemble(user_data, members, on_progress=on_progress))
            else:
                self._set_model(fit_model(user_data, adapt_recipe(recipe, user_data.dataset), on_progress))
        return self

    def fit_prepared(self, user_data: UserData, may_fit: Callable[[int], bool] = lambda index: True) -> None:
        """Train on rows that are read already, with missing values of a table left open.

        Parameters
        ----------
        user_data : UserData
            The rows, as `compare` reads them once for all trainings.
        may_fit : callable, optional
            Whether there is time for another member of an ensemble, by its index.
        """
        if members := self._list_members():
            self._set_model(fit_ensemble(user_data, members, may_fit))
            return
        recipe = self.make_recipe()
        user_data = user_data.scale(recipe.protocol.scaling)
        self._set_model(fit_model(user_data, adapt_recipe(recipe, user_data.dataset)))

    def _list_members(self) -> list[tuple[Winner, Recipe]]:
        """List the members of an ensemble, each with its recipe; none where the algorithm is a single one."""
        if not isinstance(self.algorithm, WeightedEnsemble):
            return []
        common = {**self.get_params(deep=False), "random_state": draw_seed(self.random_state)}
        members = []
        for member in self.algorithm.members:
            settings = None if member.settings is None else dict(member.settings)
            rate = self.lr if member.lr is None else member.lr
            own = {"algorithm": member.algorithm, "settings": settings, "lr": rate, "stop": member.stop}
            members.append((member, make_recipe({**common, **own}, common["random_state"], self.is_regressor)))
        return members

    def save(self, path: str | Path) -> None:
        """Write the model to a directory: model.safetensors, model.json and card.md. Nothing in it is a pickle.

        Parameters
        ----------
        path : str or Path
            The directory. A model that is there is replaced.
        """
        check_is_fitted(self, "model_")
        write_model(self.model_, Path(path))

    @classmethod
    def load(
        cls: type[Kind],
        path: str | Path,
        net: nn.Module | None = None,
        device: str = "auto",
        trust: Sequence[str] = (),
    ) -> Kind:
        """Read a model that `save` or `seqdg fit` wrote. Nothing that it names is executed but what you trust.

        Parameters
        ----------
        path : str or Path
            The directory.
        net : nn.Module, optional
            Your own module, if the model was trained with one. Its weights are replaced.
        device : str, default 'auto'
            'auto', 'cpu' or 'cuda'.
        trust : sequence of str
            Files of code that the model may name: of the function that builds its network, such as ['./mine.py'].

        Returns
        -------
        estimator
            A fitted estimator with the parameters of the one that was saved.
        """
        model = read_model(Path(path), net, choose_device(device), trust)
        if model.is_regression != cls.is_regressor:
            what, right = ("numbers", "DomainRegressor") if model.is_regression else ("classes", "DomainClassifier")
            raise UsageError(f"The model in {path} predicts {what}: load it with {right}.load.")
        return cls._restore(model, net, device)

    @classmethod
    def _restore(cls: type[Kind], model: Model, net: nn.Module | None, device: str) -> Kind:
        """Return the estimator that a model comes from."""
        parameters = {**read_parameters(model.facts["parameters"]), "net": net, "device": device}
        if isinstance(model, EnsembleModel):
            parameters["algorithm"] = WeightedEnsemble(tuple(starmap(_recall_member, model.members)))
        elif (own := _find_own(model)) is not None:
            parameters |= {"algorithm": own, "settings": None}
        estimator = cls(**{name: parameters[name] for name in cls._get_param_names() if name in parameters})
        estimator._set_model(model)
        return estimator

    def add_facts(self, **facts: Any) -> None:
        """Add facts to those on the model's card.

        Parameters
        ----------
        **facts
            Values that JSON can hold.
        """
        check_is_fitted(self, "model_")
        self.model_ = self.model_.with_facts(**facts)

    def make_recipe(self) -> Recipe:
        """Check the parameters. A UsageError names the first that is wrong.

        Returns
        -------
        Recipe
            How to train.
        """
        return make_recipe(self.get_params(deep=False), draw_seed(self.random_state), self.is_regressor)

    def _set_model(self, model: Model) -> None:
        facts = model.facts
        self.model_ = model
        self.domains_ = np.array(list(facts["domains"]), dtype=object)
        self.step_, self.validation_ = facts["step"], facts["validation"]
        self.notes_ = list(facts["notes"])
        table = model.input if isinstance(model.input, TableInput) else None
        self.n_features_in_ = math.prod(model.input.shape) if table is None else len(table.names)
        self.__dict__.pop("feature_names_in_", None)
        if table is not None and table.named:
            self.feature_names_in_ = np.array(table.names, dtype=object)

    def _compute_outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        # A transductive model needs all rows of the domain at once.
        is_split = issparse(X) and X.shape[0] and not self.model_.together
        outputs = []
        for part in split_sparse(X) if is_split else [X]:
            logits, notes = self.model_.compute_logits(self._read_input(part))
            outputs.append(logits)
            for note in notes:
                warnings.warn(note, UserWarning, stacklevel=3)
        return np.concatenate(outputs)

    def _read_input(self, X: Any) -> Any:
        """Find columns by name where there are names, else by position, with the warnings that scikit-learn gives."""
        table, source = self.model_.input, self.model_.source
        if source is not None and not source.text:
            X = self._read_features(X, source)
        if not isinstance(table, TableInput):
            return read_input(X)
        named = table.named
        text = () if source is None else source.text
        x = read_input(X, {*table.names, *text} - {*(source.names if text and source else ())} if named else None)
        if not isinstance(x, Frame):
            return x
        if source is not None and text and not set(source.names) <= set(x.names):
            x = replace_text(x, source, self.model_.device)
        if not (named and x.named) and len(x.names) != self.n_features_in_:
            raise UsageError(
                f"X has {len(x.names)} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input."
            )
        if named != x.named:
            start, end = ("X does not have valid", "with") if named else ("X has", "without")
            warnings.warn(
                f"{start} feature names, but {type(self).__name__} was fitted {end} feature names",
                UserWarning,
                stacklevel=4,
            )
        _check_for_values(x)
        return x

    def _read_features(self, X: Any, source: FeatureSource) -> Any:
        """Return features of pictures, of files of them or of what `extract_features` returned; else X itself."""
        if isinstance(X, str | Path) or (isinstance(X, list) and X and all(isinstance(i, str | Path) for i in X)):
            X = extract_features(X, require_backbone(source), device=self.model_.device)
        return check_features(self.model_, X, "X") if isinstance(X, Features) else X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False)
class DomainClassifier(ClassifierMixin, DomainEstimator):  # type: ignore[misc]
    """Classify the rows of a domain that was not seen, after training on several that were.

    Parameters
    ----------
    algorithm : str, Algorithm or scikit-learn estimator, default 'fo-s-mldg+ema'
        A name of `seqdg.list_algorithms()`, alone or with wrappers, or what `seqdg.build` returns, or an unfitted
        estimator.
    settings : dict, optional
        The algorithm's hyperparameters by name.
    net : str, NetSpec or nn.Module, optional
        'mlp', 'resnet18', ... or your own module, which returns a logit per class. Training starts from its weights;
        those with requires_grad=False stay as they are. By default an mlp for tables, and EfficientNet-Lite0 with
        ImageNet weights for images.
    hidden : tuple of int or 'auto'
        Widths of the mlp's hidden layers; 'auto' chooses them by the number of rows.
    batchnorm : str, default 'auto'
        'frozen', 'recalibrate', 'running' or 'none'. 'auto' freezes networks that start from ImageNet weights, and
        yours if no BatchNorm has weights to train, and recalibrates others.
    steps : int or 'auto'
        Training steps. 'auto' takes as many as meet every row three times, from 500 to 5000 (images: 500).
    batch : int, default 32
        Batch size: rows of every domain that a step meets.
    domains_per_step : int or 'auto'
        How many domains a step meets, drawn at random; 0 for all. 'auto': at most 8, if the algorithm allows it.
    optimizer : str, default 'adam'
        'adam', 'momentum', 'sgd', or 'auto' for the algorithm's own. With Adam it makes no difference whether a loss
        is a sum or a mean over domains, so one learning rate serves all algorithms.
    lr : float, default 0.003
        Learning rate of the optimizer.
    momentum : float, default 0.9
        Momentum of the optimizer 'momentum'.
    weight_decay : float, default 0.001
        Weight decay of the optimizer.
    scaling : str, default 'quantile'
        How a table's numbers are scaled: 'quantile' (the normal score of a value's rank, so that neither the shape of
        a column nor outliers matter) or 'standard' (mean 0, standard deviation 1).
    schedule : str, default 'constant'
        Of the learning rate: 'constant', 'cosine' (falls to 0) or 'steps' (falls to a tenth three times).
    warmup : float, default 0
        Share of the steps over which the learning rate rises at first.
    validation : float, default 0.2
        Share of every domain's rows that is not trained on; they choose the step whose weights are kept. With 0 the
        model trains on all rows and keeps the last step's weights.
    evaluations : int, default 10
        How many steps are compared on the validation rows.
    criterion : str, default 'accuracy'
        What chooses the step: accuracy, balanced_accuracy, log_loss, calibration_error, auroc (of two classes),
        macro_f1, worst_class or top5 (of more than five classes).
    stop : int, optional
        Keep the weights after this many steps, whatever the validation says. Steps of a stage that comes on top of
        `steps`, as MetaReg's first does, count.
    members : int or 'auto'
        How many networks are trained, from different seeds, as one stack; their probabilities are averaged (a deep
        ensemble). 'auto': 4 for a table, 1 for images and for your own module. The k members of random_state s start
        from the seeds k s to k s + k - 1.
    calibrate : bool, default True
        Divide logits by a temperature that is fitted to the validation rows. No predicted class changes.
    class_weight : dict or 'balanced', optional
        A weight by class.
    image_size : int, optional
        Side of the images that enter the network.
    augment : str, default ''
        '' or 'pacs'.
    device : str, default 'auto'
        'auto', 'cpu' or 'cuda'.
    random_state : int or RandomState, default 0
        The same one gives the same model.
    verbose : int, default 1
        Show how far `fit` is; 0 shows nothing.

    Attributes
    ----------
    classes_, domains_ : array
        The classes and the names of the domains, in order.
    step_ : int
        The step whose weights were kept.
    validation_ : dict
        Metrics on the validation rows, by domain.
    notes_ : list of str
        What was noticed about the data.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    `X` is a data frame (numerical and categorical columns, missing values allowed), a matrix, images of shape (row,
    channel, height, width) as bytes or floats in [0, 1], or arrays of any other shape for a module of your own.

    Examples
    --------
    >>> import numpy as np
    >>> import seqdg
    >>> draw = np.random.default_rng(0)
    >>> X, hospital = draw.normal(size=(300, 2)), np.repeat(["north", "south", "east"], 100)
    >>> ill = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = seqdg.DomainClassifier("agg+ema", steps=50, members=1, device="cpu")
    >>> model.fit(X, ill, domains=hospital).predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    ['yes', 'no']
    """

    is_regressor = False
    algorithm: str | Algorithm | WeightedEnsemble = "fo-s-mldg+ema"
    _: KW_ONLY
    criterion: str = "accuracy"
    calibrate: bool = True
    class_weight: Any = None

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of every row.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs. A data frame's columns are found by name.

        Returns
        -------
        array of shape (row,)
        """
        outputs = self._compute_outputs(X)  # which says whether there is a model
        return self.model_.choose_classes(outputs)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs.

        Returns
        -------
        array of shape (row, class)
            In the order of `classes_`.
        """
        return np.asarray(softmax(self._compute_outputs(X), axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs, best of a domain that the model has not seen.
        y : array of shape (row,)
            The labels.
        sample_weight : array of shape (row,), optional
            How much each row counts.

        Returns
        -------
        float
            The share of correct predictions.
        """
        return float(super().score(X, y, sample_weight))

    def predict_label_shift(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the probability of every class in a domain where classes are as frequent as its own rows say.

        Where classes are more or less frequent than in training and look the same within a class (label shift, as where
        another clinic sees more of the ill), the rows of the new domain tell how frequent, without labels: expectation-
        maximization over the model's probabilities (Saerens, Latinne and Decaestecker, 2002). Where domains differ in
        another way, the correction may do harm.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The rows of one domain, 20 at least.

        Returns
        -------
        probabilities : array of shape (row, class)
            In the order of `classes_`.
        shares : array of shape (class,)
            How frequent the classes are in this domain.

        Examples
        --------
        >>> import numpy as np
        >>> import seqdg
        >>> draw = np.random.default_rng(0)
        >>> X, ill = draw.normal(size=(600, 1)), np.repeat([0, 1], 300)
        >>> X[ill == 1] += 2
        >>> model = seqdg.DomainClassifier("logistic").fit(X, ill, domains=np.arange(600) % 3)
        >>> new = np.concatenate([draw.normal(size=(450, 1)), draw.normal(size=(50, 1)) + 2])  # a tenth is ill
        >>> model.predict_proba(new).mean(axis=0).round(1).tolist()
        [0.8, 0.2]
        >>> model.predict_label_shift(new)[1].round(1).tolist()
        [0.9, 0.1]
        """
        p, priors = self.predict_proba(X), self.model_.facts["priors"]
        check_label_shift(priors, len(p))
        return correct_label_shift(p, np.array(priors))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the logits.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs.

        Returns
        -------
        array of shape (row, class)
            Of two classes, the second's logit minus the first's, of shape (row,).
        """
        logits = self._compute_outputs(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def _set_model(self, model: Model) -> None:
        super()._set_model(model)
        self.classes_ = model.classes


@dataclass(eq=False, repr=False)
class DomainRegressor(RegressorMixin, DomainEstimator):  # type: ignore[misc]
    """Predict a number for rows of an unseen domain, after training on several others.

    Training scales y to mean 0 and standard deviation 1; predictions are in the units of y.

    Parameters
    ----------
    algorithm : str, Algorithm or scikit-learn estimator, default 'agg+ema'
        One that reads targets through the loss alone; others say that they need classes. Look-ahead steps along the
        gradient of a squared loss, which grows with the error, want a small alpha (0.03 and below).
    net : str, NetSpec or nn.Module, optional
        Your own module returns one number per row, of shape (row, 1), in units of the standard deviation.
    loss : str, default 'squared'
        'squared', 'absolute' or 'huber', of the difference in units of the standard deviation.
    criterion : str, default 'rmse'
        What chooses the step: rmse, mae, r2 or pearson.
    settings, hidden, batchnorm, steps, batch, domains_per_step, optimizer, lr, momentum, weight_decay, scaling, \
schedule, warmup, validation, evaluations, stop, members, image_size, augment, device, random_state, verbose : optional
        As in `DomainClassifier`.

    Attributes
    ----------
    domains_, step_, validation_, notes_, n_features_in_, feature_names_in_
        As in `DomainClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> import seqdg
    >>> draw = np.random.default_rng(0)
    >>> X, hospital = draw.normal(size=(300, 2)), np.repeat(["north", "south", "east"], 100)
    >>> model = seqdg.DomainRegressor("ridge", device="cpu").fit(X, 3 * X[:, 0] + 1, domains=hospital)
    >>> model.predict([[2.0, 0.0]]).round(1).tolist()
    [7.0]
    """

    is_regressor = True
    algorithm: str | Algorithm | WeightedEnsemble = "agg+ema"
    _: KW_ONLY
    criterion: str = "rmse"
    loss: str = "squared"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return a number for every row, in the units of y.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs. A data frame's columns are found by name.

        Returns
        -------
        array of shape (row,)
        """
        return self._compute_outputs(X)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R², the share of the targets' variance that the predictions explain.

        Parameters
        ----------
        X : data frame, matrix or array of shape (row, ...)
            The inputs, best of a domain that the model has not seen.
        y : array of shape (row,)
            The targets.
        sample_weight : array of shape (row,), optional
            How much each row counts.

        Returns
        -------
        float
            1 is perfect, 0 no better than predicting the mean of y, and negative worse.
        """
        return float(super().score(X, y, sample_weight))


def choose_estimator(y: Any) -> DomainEstimator:
    """Choose a regressor for numbers with fractions, and a classifier for all else."""
    values = np.asarray(y)
    fractions = values.dtype.kind == "f" and bool((values[np.isfinite(values)] % 1 != 0).any())
    return DomainRegressor() if fractions else DomainClassifier()


def load_estimator(path: Path, device: str = "auto") -> DomainClassifier | DomainRegressor:
    """Read a saved model as the estimator that it was: a classifier or a regressor."""
    model = read_model(path, device=choose_device(device))
    return (DomainRegressor if model.is_regression else DomainClassifier)._restore(model, None, device)


def _find_own(model: Model) -> Any:
    """Return a copy of the user's own object that a model was fitted by; None of a model that has a name."""
    fitted = model.predict if isinstance(model, ArrayModel) else None
    if not isinstance(fitted, FittedEstimator) or model.name in list_learners():
        return None
    return clone(fitted.estimator)


def _recall_member(model: Model, member: Winner) -> Winner:
    """Add to how a fitted member counts how it was trained."""
    if (own := _find_own(model)) is not None:
        return replace(member, algorithm=own)
    about = model.facts["parameters"]
    return replace(member, settings=read_settings(about), lr=about["lr"], stop=about["stop"])


def _check_for_values(frame: Frame) -> None:
    """Raise a UsageError if no column holds a value; warn of one that is empty in all of many rows."""
    empty = [n for n, c in zip(frame.names, frame.columns, strict=True) if len(frame) and not count_present(c)]
    if empty and len(empty) == len(frame.names):
        raise UsageError("No column that the model reads holds any value: there is nothing to predict from.")
    if empty and len(frame) >= MANY_ROWS:
        warnings.warn(
            f"Columns without a value in all {len(frame)} rows: {list_some(empty)}. Is it the right table?",
            UserWarning,
            stacklevel=5,
        )
