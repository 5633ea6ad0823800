r"""Linear classification by a Fenchel-Young loss.

    minimise  ½ ‖W‖² + C Σ_i w_i L(W x_i + b, y_i)

over the weights W and intercepts b of all classes, with the weights w_i of samples and classes.
With the loss of softmax this is multinomial logistic regression. The loss of an α-entmax, α > 1, is
convex and smooth too, but 0 from a margin on; its probabilities are zero for most classes.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

import pyentmax as pe

ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
ONE_VS_ALL = "one-vs-all"

Floats = NDArray[np.float64]


class FenchelYoungClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier with a sparse loss, and so with probabilities that are exactly zero.

    With the loss "one-vs-all" it is a multi-label classifier too: fitted to (n, K) targets, such as
    0 and 1, it predicts each label separately.

    Parameters
    ----------
    loss : {"entmax15", "sparsemax", "softmax", "one-vs-all"} or float
        The mapping from scores to probabilities, whose Fenchel-Young loss is minimised; a number is
        the α of α-entmax, above 0. "one-vs-all" decides on each class separately, by 1.5-entmax
        of its score and 0. For single labels its probabilities are then divided by their sum.
    penalty : {"l2", None}
        Whether ½‖W‖² is added. Intercepts are not penalised.
    C : float
        Weight of the losses against the penalty.
    fit_intercept : bool
    max_iter : int
        The most iterations of L-BFGS.
    tol : float
        L-BFGS ends where no entry of the mean loss's gradient is larger, as for
        `sklearn.linear_model.LogisticRegression`.
    class_weight : dict, "balanced" or None
        As for `sklearn.linear_model.LogisticRegression`: ``{label: weight}``, 1 for a label that is
        not named, or "balanced" for n/(K n_k), n the samples and n_k those of class k. A sample
        counts by its `sample_weight` times the weight of its class. For labels only.
    warm_start : bool
        Whether `fit` starts from the coefficients of the last one, if they are for the same classes
        and number of features; otherwise it starts from zeros.

    Attributes
    ----------
    classes_ : (K,) array
        The labels, ascending; 0 … K − 1 if the targets were distributions without names.
    coef_ : (K, n_features) array
    intercept_ : (K,) array
    n_iter_ : int
        Iterations of L-BFGS.
    multilabel_ : bool
        Whether each label is predicted separately.

    References
    ----------
    Martins and Astudillo (2016), From Softmax to Sparsemax; Blondel, Martins and Niculae (2020),
    Learning with Fenchel-Young Losses.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = FenchelYoungClassifier("sparsemax").fit(X, y)
    >>> print(classifier.predict_proba(X[:1]))
    [[1. 0. 0.]]
    >>> bool(classifier.score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        loss: str | float = "entmax15",
        *,
        penalty: str | None = "l2",
        C: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 500,
        tol: float = 1e-4,
        class_weight: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.C = C
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.warm_start = warm_start

    # --- fitting ----------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> FenchelYoungClassifier:
        """Fit to labels (n,), or to distributions (n, K) over K classes.

        Parameters
        ----------
        X : (n, n_features) array or SciPy sparse matrix
        y : (n,) labels, or (n, K) distributions, sparse ones too
            For "one-vs-all", (n, K) separate probabilities of each class, such as 0 and 1.
        sample_weight : (n,) array, optional

        Raises
        ------
        ValueError
            If a setting is out of range, there is only one class, or shapes do not fit.
        """
        self._check_settings()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True)
        y, classes, targets = _targets(y)
        weight = self._weights(X, y, classes, sample_weight)
        start = self._start(classes, X.shape[1])
        coef, intercept, n_iter = self._minimized(X, targets, weight, start)
        self.classes_, self.coef_, self.intercept_, self.n_iter_ = classes, coef, intercept, n_iter
        self.multilabel_ = self.loss == ONE_VS_ALL and y.ndim == 2
        return self

    def _check_settings(self) -> None:
        weighted_loss(self.loss)
        if self.penalty not in ("l2", None):
            raise ValueError(f"penalty: expected 'l2' or None, got {self.penalty!r}")
        for name in ("C", "max_iter", "tol"):
            value = getattr(self, name)
            if not (_is_number(value) and value > 0 and (name == "C" or math.isfinite(value))):
                raise ValueError(f"{name}: expected a number above 0, got {value!r}")
        max_iter: Any = self.max_iter
        if not isinstance(max_iter, Integral):
            raise ValueError(f"max_iter: expected a positive whole number, got {max_iter!r}")

    def _weights(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> Floats:
        weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
        )
        if self.class_weight is not None:
            if y.ndim == 2:
                raise ValueError("class_weight: expected labels, y holds distributions")
            per_class = compute_class_weight(self.class_weight, classes=classes, y=y)
            place = np.searchsorted(classes, y)
            if self.class_weight == "balanced":  # weights count as repetitions do
                per_label = np.bincount(place, weight)
                per_class = per_label.mean() / np.where(per_label > 0, per_label, 1)
            weight *= per_class[place]
        with np.errstate(over="ignore"):
            total = weight.sum()
        if not (weight.min() >= 0 and 0 < total < math.inf):
            raise ValueError(
                "weights: expected numbers of 0 or more with a sum above 0 that a float can hold, "
                f"got from {weight.min():g} to {weight.max():g} with the sum {total:g}"
            )
        return np.asarray(weight)

    def _start(self, classes: Any, features: int) -> Floats:
        """Coefficients and intercept of each class to start from, (K, features + 1)."""
        start = np.zeros((len(classes), features + 1))
        if self.warm_start and hasattr(self, "coef_"):
            last = np.column_stack([self.coef_, self.intercept_])
            if np.array_equal(self.classes_, classes) and last.shape == start.shape:
                start[:, : features + self.fit_intercept] = last[:, : features + self.fit_intercept]
        return start

    def _minimized(
        self, X: Any, targets: Any, weight: Floats, start: Floats
    ) -> tuple[Floats, Floats, int]:
        """Coefficients, intercepts and iterations of L-BFGS, on the objective over C Σ weight."""
        loss = weighted_loss(self.loss)
        total = weight.sum()
        # Where a factor exceeds floats there is no penalty, or the penalty is all that counts.
        decay = 0.0 if self.penalty is None else 1 / float(self.C) / float(total)
        decay = min(decay, sys.float_info.max)

        def objective(parameters: Floats) -> tuple[float, Floats]:
            table = parameters.reshape(start.shape)
            coef, intercept = table[:, :-1], table[:, -1]
            value, g = loss(safe_sparse_dot(X, coef.T) + intercept, targets, weight / total)
            gradient = np.empty_like(table)
            gradient[:, :-1] = safe_sparse_dot(g.T, X) + decay * coef
            gradient[:, -1] = g.sum(axis=0) if self.fit_intercept else 0
            return float(value + decay / 2 * np.vdot(coef, coef)), gradient.reshape(-1)

        result = minimize(
            objective,
            start.reshape(-1),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.max_iter, "gtol": self.tol, "ftol": 0.0, "maxfun": 10**9},
        )
        n_iter = max(int(result.nit), 1)
        # Scores or gradients beyond floats end the search early, often where it began.
        if result.nit >= self.max_iter or not np.abs(result.jac).max() <= self.tol:
            warnings.warn(
                f"lbfgs did not converge in {n_iter} iterations; scale the features, or change "
                "max_iter, C or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        table = result.x.reshape(start.shape)
        return table[:, :-1].copy(), table[:, -1].copy(), n_iter

    # --- use --------------------------------------------------------------------------------------
    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.asarray(safe_sparse_dot(X, self.coef_.T) + self.intercept_)
        if not np.isfinite(scores).all():
            raise ValueError("X: the scores are beyond floats: scale the features")
        return scores

    def decision_function(self, X: Any) -> Floats:
        """The scores (n, K); for two classes that exclude each other their difference, (n,)."""
        scores = self._scores(X)
        if scores.shape[1] == 2 and not self.multilabel_:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, K), zero for most classes.

        They sum to 1 in each row, unless the classifier is multi-label.
        """
        scores = self._scores(X)
        if self.loss != ONE_VS_ALL:
            return np.asarray(pe.entmax(scores, alpha_of(self.loss)))
        p = pe.entmax_sigmoid(scores, 1.5)
        if self.multilabel_:
            return p
        whole = p.sum(axis=1, keepdims=True)
        return np.where(whole > 0, p / np.where(whole > 0, whole, 1), 1 / p.shape[1])

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities, −∞ for those that are zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """The label with the highest score; of a multi-label classifier (n, K), 1 for each label.

        Those are the labels with a score above 0, a probability above ½.
        """
        scores = self._scores(X)
        if self.multilabel_:
            return (scores > 0).astype(int)
        return self.classes_[scores.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        """Tags that allow sparse matrices and, one against all, several labels."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = self.loss == ONE_VS_ALL
        return tags


def _targets(y: Any) -> tuple[Any, Any, Any]:
    """The targets as an array, the classes, and labels 0 … K − 1 or the distributions."""
    if issparse(y):  # as MultiLabelBinarizer may give the labels of each sample
        y = y.toarray()
    if y.ndim == 2 and y.shape[1] > 1:
        return y, np.arange(y.shape[1]), y.astype(np.float64)
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(f"y: expected at least two classes, got one class: {classes}")
    return y, classes, np.searchsorted(classes, y)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


Loss = Callable[[Floats, Any, Floats], tuple[float, Floats]]


def alpha_of(loss: str | float) -> float:
    """The α of a loss by its name or its number; a ValueError if there is none."""
    if isinstance(loss, str) and loss in ALPHAS:
        return ALPHAS[loss]
    if _is_number(loss) and 0 < loss < math.inf:
        return float(loss)
    raise ValueError(
        f"loss: expected one of {', '.join(ALPHAS)}, {ONE_VS_ALL} or a finite α above 0, got "
        f"{loss!r}"
    )


def weighted_loss(loss: str | float) -> Loss:
    """The function from scores, targets and weights to the weighted sum and its gradient."""
    alpha = 1.5 if loss == ONE_VS_ALL else alpha_of(loss)
    loss_and_grad = pe.one_vs_all_loss_and_grad if loss == ONE_VS_ALL else pe.entmax.loss_and_grad

    def weighted(scores: Floats, targets: Any, weight: Floats) -> tuple[float, Floats]:
        return loss_and_grad(scores, targets, alpha, reduction="sum", weight=weight)

    return weighted
