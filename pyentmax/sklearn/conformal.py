r"""Supports as prediction sets (Campos et al. 2025, arXiv 2502.14773), for any classifier.

A label y is in the support of entmax(z / q) exactly if

    Σ_k [(α − 1) (z_k − z_y) / q]₊^{1/(α−1)} < 1,

that is if q is larger than the score s(z, y) = (Σ_k [(α − 1) (z_k − z_y)]₊^{1/(α−1)})^{α−1}: the
temperature that y needs to enter the support. So sets {y : s(z, y) ≤ q} with the quantile q of the
scores of right labels are split conformal prediction, and supports at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pyentmax.engine.system.config import is_number

Floats = NDArray[np.float64]

ROUNDING = 1e-10
"""By this share scores may differ in another batch: a sample seen again must keep its label."""


def support_scores(z: Floats, at: Floats, alpha: float, rounding: float = 0.0) -> Floats:
    """The temperature at which a label enters the support of each row, given its score there.

    With a rounding it is a lower bound: that of gaps z_k − z_y smaller by such a share of the row's
    largest score. A temperature beyond floats is infinite.

    Examples
    --------
    >>> support_scores(np.array([[3.0, 2.0, 0.0]]), np.array([0.0]), alpha=2)
    array([5.])
    """
    halves = z / 2  # whose gaps are floats
    slack = rounding * np.abs(halves).max(axis=1, keepdims=True)
    gaps = np.maximum(halves - at[:, None] / 2 - slack, 0)
    # Powers of shares of the largest gap: gaps may be of any size.
    largest = gaps.max(axis=1, keepdims=True)
    shares = np.divide(gaps, largest, out=np.zeros_like(gaps), where=largest > 0)
    with np.errstate(over="ignore"):
        total = (shares ** (1 / (alpha - 1))).sum(axis=1) ** (alpha - 1)
        return np.asarray(largest[:, 0] * total * (alpha - 1) * 2)


def support_sets(z: Floats, alpha: float, temperature: float) -> NDArray[np.bool_]:
    """Which labels have entered the support at a temperature, which may be infinite.

    A label enters before all with lower scores, so that the last one is found by bisection.

    Examples
    --------
    >>> support_sets(np.array([[3.0, 2.0, 0.0]]), alpha=2, temperature=1.5)
    array([[ True,  True, False]])
    """
    ascending = np.sort(z, axis=1)
    low, high = np.zeros(len(z), int), np.full(len(z), z.shape[1] - 1)
    for _ in range((z.shape[1] - 1).bit_length()):
        middle = (low + high) // 2
        at = np.take_along_axis(ascending, middle[:, None], axis=1)[:, 0]
        inside = support_scores(z, at, alpha, ROUNDING) <= temperature
        low, high = np.where(inside, low, middle + 1), np.where(inside, middle, high)
    return z >= np.take_along_axis(ascending, high[:, None], axis=1)


def calibration_scores(z: Floats, y: ArrayLike, classes: Any, alpha: float) -> Floats:
    """The scores s(z, y) of the right labels, ascending."""
    labels: Any = column_or_1d(y, warn=True)
    if labels.shape != (len(z),):
        raise ValueError(f"y: expected {len(z)} labels, got shape {labels.shape}")
    check_classification_targets(labels)
    distinct(np.concatenate([classes, labels]))  # of one kind
    place = np.searchsorted(classes, labels)
    wrong = classes[np.minimum(place, len(classes) - 1)] != labels
    if wrong.any():
        raise ValueError(f"y: expected the classes {classes}, got {labels[wrong][0]}")
    at = np.take_along_axis(z, place[:, None], axis=1)[:, 0]
    return np.sort(support_scores(z, at, alpha))


def quantile(ascending: Floats, coverage: float) -> float:
    """The score that a new one exceeds with a probability of at most 1 − coverage.

    It is the ⌈(n + 1) · coverage⌉-th smallest of n, or infinite if n is too small for that.

    Examples
    --------
    >>> quantile(np.arange(1.0, 10.0), 0.8), quantile(np.arange(1.0, 10.0), 0.95)
    (8.0, inf)
    """
    if not (is_number(coverage) and 0 < coverage < 1):
        raise ValueError(f"coverage: expected one number between 0 and 1, got {coverage!r}")
    rank = max(math.ceil((len(ascending) + 1) * coverage - 1e-9), 1)
    return float(ascending[rank - 1]) if rank <= len(ascending) else math.inf


def distinct(y: Any) -> Any:
    """The labels, each once, in ascending order; a ValueError where they have none."""
    try:
        return np.unique(y)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise ValueError(f"y: expected labels of one kind, got {' and '.join(kinds)}") from None


def _has(method: str) -> Any:
    return available_if(lambda self: hasattr(self._model(), method))


class PredictsSets:
    """What a classifier with ``_scores(X)``, (n, K), and ``_set_alpha()`` does about sets."""

    classes_: Any
    _scores: Callable[[Any], Floats]
    _set_alpha: Callable[[], float]

    def calibrate(self, X: Any, y: ArrayLike) -> Self:
        """Learn from labelled samples that were not trained on how large sets have to be.

        Parameters
        ----------
        X : (n, n_features) array, or what the classifier takes
        y : (n,) labels
        """
        scores, alpha = self._scores(X), self._set_alpha()
        self.calibration_scores_ = calibration_scores(scores, y, self.classes_, alpha)
        self.calibration_alpha_ = alpha
        return self

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """A set of labels for each sample that holds the right one with a given probability.

        The sets are supports: of entmax(z/q), where the temperature q is such that the supports of
        the samples given to `calibrate` held the right labels often enough. Whatever the model and
        the distribution, a new sample from the same one has its label in its set with at least that
        probability, on average over calibrations (split conformal prediction).

        Parameters
        ----------
        X : as for `calibrate`
        coverage : float
            Between 0 and 1.

        Returns
        -------
        (n, K) bool array
            True for the labels of the set, in the order of ``classes_``. No set is empty.

        Raises
        ------
        ValueError
            If `calibrate` was not called since the last `fit` or change of α, the classifier's loss
            has no supports, or the coverage is out of range.
        """
        scores, alpha = self._scores(X), self._set_alpha()
        if not hasattr(self, "calibration_scores_"):
            raise ValueError("predict_set: expected calibrate(X, y) before it")
        if self.calibration_alpha_ != alpha:
            raise ValueError(
                "predict_set: expected calibrate(X, y) before it, since α has changed after the "
                f"last one, from {self.calibration_alpha_} to {alpha}"
            )
        return support_sets(scores, alpha, quantile(self.calibration_scores_, coverage))

    def _forget_calibration(self) -> None:
        """A calibration holds only for the coefficients that it was made with."""
        for name in ("calibration_scores_", "calibration_alpha_"):
            self.__dict__.pop(name, None)


class ConformalClassifier(PredictsSets, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Prediction sets with a guaranteed coverage around any classifier or pipeline.

    The sets are supports of α-entmax(scores / q), for scores from the classifier's
    ``decision_function``, or ``predict_proba`` where it has none, and a temperature q such that the
    supports of the samples given to `calibrate` held the right labels often enough.

    Parameters
    ----------
    estimator : classifier
        Fitted already, or fitted as a clone by `fit`.
    alpha : float
        Above 1. It has no influence on the coverage, but on how the sizes of sets vary.

    Attributes
    ----------
    estimator_ : classifier
        The one that `fit` fitted; not there if the given one is in use.
    classes_ : (K,) array

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConformalClassifier(make_pipeline(StandardScaler(), LogisticRegression()))
    >>> model = model.fit(X[::2], y[::2]).calibrate(X[1::4], y[1::4])
    >>> sets = model.predict_set(X[3::4], coverage=0.9)
    >>> bool(sets[range(len(sets)), y[3::4]].mean() > 0.85)
    True
    """

    def __init__(self, estimator: Any, *, alpha: float = 1.5) -> None:
        self.estimator = estimator
        self.alpha = alpha

    def fit(self, X: Any, y: Any, **options: Any) -> ConformalClassifier:
        """Fit a clone of the classifier; `calibrate` it afterwards, on other samples.

        Parameters
        ----------
        X, y, **options
            As the classifier's own ``fit`` takes them.
        """
        if get_config()["enable_metadata_routing"]:
            options = process_routing(self, "fit", **options).estimator.fit
        self.estimator_ = clone(self.estimator).fit(X, y, **options)
        self._forget_calibration()
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """That ``fit`` hands on what the classifier's own requests; ``score`` has its own."""
        fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=fit)

    def predict(self, X: Any) -> Any:
        """The classifier's labels."""
        return self._model().predict(X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """The classifier's probabilities."""
        return self._model().predict_proba(X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """The classifier's scores."""
        return self._model().decision_function(X)

    @property
    def classes_(self) -> Any:
        """The labels, in the order of columns."""
        return self._model().classes_

    @property
    def n_features_in_(self) -> int:
        """The number of features, if the classifier has it."""
        return int(self._model().n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """Their names, if the classifier has seen any."""
        return self._model().feature_names_in_

    def _set_alpha(self) -> float:
        if not (self.alpha > 1 and math.isfinite(self.alpha)):
            raise ValueError(f"alpha: expected a finite number above 1, got {self.alpha!r}")
        return self.alpha

    def _model(self) -> Any:
        return getattr(self, "estimator_", self.estimator)

    def _scores(self, X: Any) -> Floats:
        model = self._model()
        check_is_fitted(model)
        name = "decision_function" if hasattr(model, "decision_function") else "predict_proba"
        scores = np.asarray(getattr(model, name)(X), dtype=np.float64)
        if scores.ndim == 1:  # of two classes, the difference
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        if scores.shape[1] != len(model.classes_) or not np.isfinite(scores).all():
            raise ValueError(
                f"estimator: expected a finite score for each of {len(model.classes_)} classes, "
                f"got shape {scores.shape} from {name}"
            )
        return scores

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the classifier in use is fitted."""
        check_is_fitted(self._model())
        return True

    def __sklearn_tags__(self) -> Any:
        """That sparse matrices are taken where the classifier takes them."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.estimator.__sklearn_tags__().input_tags.sparse
        return tags
