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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, compute_class_weight, gen_batches
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

import pyentmax as pe
from pyentmax.calls.numbers import is_number
from pyentmax.sklearn.conformal import quantile, support_scores

ALPHAS = {"softmax": 1.0, "entmax15": 1.5, "sparsemax": 2.0}
ONE_VS_ALL = "one-vs-all"
_SOLVERS = ("lbfgs", "sgd")
_PATIENCE = 5  # epochs of sgd without a better objective until it stops

Floats = NDArray[np.float64]


class FenchelYoungClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier with a sparse loss, and so with probabilities that are exactly zero.

    Parameters
    ----------
    loss : {"entmax15", "sparsemax", "softmax", "one-vs-all"} or float
        The mapping from scores to probabilities, whose Fenchel-Young loss is minimised; a number is
        the α of α-entmax, from 1 up. "one-vs-all" decides on each class apart, by 1.5-entmax of its
        score and 0; its probabilities are then divided by their sum.
    penalty : {"l2", None}
        Whether ½‖W‖² is added. Intercepts are not penalised.
    C : float
        Weight of the losses against the penalty.
    fit_intercept : bool
    solver : {"lbfgs", "sgd"}
        L-BFGS on all samples at once, or AdaGrad on batches, which `partial_fit` takes too.
    max_iter : int
        Most iterations of L-BFGS, or epochs.
    tol : float
        L-BFGS ends where no entry of the mean loss's gradient is larger; sgd once the mean loss
        has not fallen by so much in five epochs.
    class_weight : dict, "balanced" or None
        As for `sklearn.linear_model.LogisticRegression`.
    batch_size : int
        Samples per step of sgd.
    rate : float
        AdaGrad's step size.
    random_state : int, RandomState or None
        Order of the samples for sgd.

    Attributes
    ----------
    classes_ : (K,) array
        The labels, ascending; 0 … K − 1 if the targets were distributions without names.
    coef_ : (K, n_features) array
    intercept_ : (K,) array
    n_iter_ : int
        Iterations of L-BFGS, or epochs.

    References
    ----------
    Martins and Astudillo (2016), From Softmax to Sparsemax; Blondel, Martins and Niculae (2020),
    Learning with Fenchel-Young Losses; Campos, Farinhas, Zerva, Figueiredo and Martins (2025),
    Sparse Activations as Conformal Predictors, for the prediction sets.

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

    _steps: AdaGrad

    def __init__(
        self,
        loss: str | float = "entmax15",
        *,
        penalty: str | None = "l2",
        C: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "lbfgs",
        max_iter: int = 500,
        tol: float = 1e-6,
        class_weight: Any = None,
        batch_size: int = 64,
        rate: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.C = C
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.batch_size = batch_size
        self.rate = rate
        self.random_state = random_state

    # --- fitting ----------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> FenchelYoungClassifier:
        """Fit to labels (n,), or to distributions (n, K) over K classes.

        Parameters
        ----------
        X : (n, n_features) array or SciPy sparse matrix
        y : (n,) labels, or (n, K) distributions, sparse ones too
            For "one-vs-all", (n, K) probabilities of each class apart, such as 0 and 1.
        sample_weight : (n,) array, optional

        Raises
        ------
        ValueError
            If a setting is out of range, there is only one class, shapes do not fit, or sgd comes
            to numbers beyond floats. A call that fails leaves the estimator as it was.
        """
        self._check_settings()
        with self._all_or_nothing():
            self._forget_calibration()
            X, y = self._checked(X, y, reset=True)
            targets = self._targets(y, None)
            weight = self._weights(X, y, sample_weight)
            self._begin(X.shape[1])
            fit = self._fit_at_once if self.solver == "lbfgs" else self._fit_in_steps
            fit(X, targets, weight)
        return self

    @available_if(lambda self: self.solver == "sgd")
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FenchelYoungClassifier:
        """One epoch of sgd on some samples; a method for that solver alone.

        Settings count as they are at this call; AdaGrad's sums of squares go on from call to call.
        As for scikit-learn's `SGDClassifier`, class_weight cannot be "balanced" here, since the
        samples of one call need not be as the classes are: give the weights that
        `sklearn.utils.compute_class_weight` finds on many samples, as a dict.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
        classes : (K,) array
            All labels that will ever come; the first call needs it unless y holds distributions.
            Of these it names the columns, and then stands in ascending order, as ``classes_`` does.

        Raises
        ------
        ValueError
            As for `fit`, and if class_weight is "balanced", or classes are missing or not those of
            the first call. A call that fails leaves the estimator as it was.
        """
        self._check_settings()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight: expected a dict or None to fit parts, got {self.class_weight!r}; "
                "compute_class_weight('balanced', classes=classes, y=y) of sklearn.utils finds the "
                "weights on the labels y of many samples"
            )
        with self._all_or_nothing():
            self._forget_calibration()
            first = not hasattr(self, "coef_")
            X, y = self._checked(X, y, reset=first)
            if first and classes is None and y.ndim == 1:
                raise ValueError("classes: expected all labels at the first call of partial_fit")
            known = None if classes is None else _known(classes, y.ndim == 2)
            if not first and known is not None and not np.array_equal(known, self.classes_):
                raise ValueError(
                    f"classes: expected those of the first call, {self.classes_}, got {known}"
                )
            targets = self._targets(y, known if first else self.classes_)
            weight = self._weights(X, y, sample_weight)
            if first:
                self._begin(X.shape[1])
            self._steps = AdaGrad(self.rate, self._steps)
            self.n_iter_ += 1
            self._epoch(X, targets, weight, np.arange(X.shape[0]))
        return self

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What fails leaves every attribute as it was: these are replaced, never written into."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _begin(self, features: int) -> None:
        self.coef_ = np.zeros((len(self.classes_), features))
        self.intercept_ = np.zeros(len(self.classes_))
        self.n_iter_ = 0
        self._steps = AdaGrad(self.rate)

    def _forget_calibration(self) -> None:
        # It holds for the coefficients that it was found with, and for no others.
        for name in ("calibration_scores_", "calibration_alpha_"):
            self.__dict__.pop(name, None)

    def _check_settings(self) -> None:
        loss_of(self.loss)
        if self.penalty not in ("l2", None):
            raise ValueError(f"penalty: expected 'l2' or None, got {self.penalty!r}")
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver: expected one of {_SOLVERS}, got {self.solver!r}")
        for name in ("C", "max_iter", "tol", "batch_size", "rate"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0 and (name == "C" or math.isfinite(value))):
                raise ValueError(f"{name}: expected a number above 0, got {value!r}")
        for name in ("max_iter", "batch_size"):
            if not isinstance(getattr(self, name), Integral):
                raise ValueError(
                    f"{name}: expected a positive whole number, got {getattr(self, name)!r}"
                )

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=np.float64,
            multi_output=True,
            y_numeric=False,
        )
        if issparse(y):  # as MultiLabelBinarizer may give the labels of each sample
            y = y.toarray()
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if y.ndim == 1:
            check_classification_targets(y)
        return X, y

    def _targets(self, y: Any, known: Any) -> Any:
        """Labels 0 … K − 1, or the distributions; sets the classes, to those known if there are."""
        if y.ndim == 2:
            self.classes_ = np.arange(y.shape[1]) if known is None else known
            if len(self.classes_) != y.shape[1]:
                raise ValueError(
                    f"y: expected {len(self.classes_)} columns, got {y.shape[1]}; "
                    f"the classes are {self.classes_}"
                )
            return y.astype(np.float64)
        found = _distinct(y)
        self.classes_ = found if known is None else known
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got one class: {self.classes_}")
        if strange := set(found) - set(self.classes_):
            raise ValueError(f"y: expected the classes {self.classes_}, got {sorted(strange)[0]}")
        return np.searchsorted(self.classes_, y)

    def _weights(self, X: Any, y: Any, sample_weight: Any) -> Floats:
        weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
        )
        if self.class_weight is not None:
            if y.ndim == 2:
                raise ValueError("class_weight: expected labels, y holds distributions")
            of_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            place = np.searchsorted(self.classes_, y)
            if self.class_weight == "balanced":  # weights count as repetitions do
                found = np.bincount(place, weight)
                of_class = found.mean() / np.where(found > 0, found, 1)
            weight *= of_class[place]
        with np.errstate(over="ignore"):
            total = weight.sum()
        if not (weight.min() >= 0 and 0 < total < math.inf):
            raise ValueError(
                "weights: expected numbers of 0 or more with a sum above 0 that a float can hold, "
                f"got from {weight.min():g} to {weight.max():g} with the sum {total:g}"
            )
        return np.asarray(weight)

    def _decay(self, total: float) -> float:
        """Weight of the penalty, beside a mean of the losses."""
        # Where one factor is beyond floats there is no penalty, or nothing else to speak of.
        decay = 0.0 if self.penalty is None else 1 / float(self.C) / float(total)
        return min(decay, sys.float_info.max)

    def _fit_at_once(self, X: Any, targets: Any, weight: Floats) -> None:
        """L-BFGS, on the objective divided by C and the weights' sum."""
        loss = loss_of(self.loss)
        classes, features = self.coef_.shape
        total = weight.sum()
        decay = self._decay(total)

        def objective(parameters: Floats) -> tuple[float, Floats]:
            table = parameters.reshape(classes, features + 1)
            coef, intercept = table[:, :-1], table[:, -1]
            value, g = loss(safe_sparse_dot(X, coef.T) + intercept, targets, weight / total)
            gradient = np.empty_like(table)
            gradient[:, :-1] = safe_sparse_dot(g.T, X) + decay * coef
            gradient[:, -1] = g.sum(axis=0) if self.fit_intercept else 0
            return float(value + decay / 2 * np.vdot(coef, coef)), gradient.reshape(-1)

        found = minimize(
            objective,
            np.zeros(classes * (features + 1)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.max_iter, "gtol": self.tol, "ftol": 0.0, "maxfun": 10**9},
        )
        table = found.x.reshape(classes, features + 1)
        self.coef_, self.intercept_ = table[:, :-1].copy(), table[:, -1].copy()
        self.n_iter_ = max(int(found.nit), 1)
        # Scores or gradients beyond floats end the search early, often where it began.
        if found.nit >= self.max_iter or not np.abs(found.jac).max() <= self.tol:
            self._warn("max_iter, C or tol")

    def _fit_in_steps(self, X: Any, targets: Any, weight: Floats) -> None:
        rng = check_random_state(self.random_state)
        best, since = math.inf, 0
        for epoch in range(1, int(self.max_iter) + 1):
            self.n_iter_ = epoch
            value = self._epoch(X, targets, weight, rng.permutation(X.shape[0]))
            best, since = (value, 0) if value < best - self.tol else (min(best, value), since + 1)
            if since == _PATIENCE:
                return
        self._warn("max_iter, rate or tol")

    def _epoch(self, X: Any, targets: Any, weight: Floats, order: NDArray[np.intp]) -> float:
        """Steps over all samples; returns the mean of their losses on the way.

        A ValueError where that, the coefficients or AdaGrad's sums are beyond floats.
        """
        loss, total = loss_of(self.loss), weight.sum()
        decay = self._decay(total)
        value = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # an error says it below
            for part in gen_batches(len(order), int(self.batch_size)):
                rows = order[part]
                # A batch counts what its samples weigh: its gradient is on average that of all.
                share, scale = weight[rows] / total, len(order) / len(rows)
                scores = safe_sparse_dot(X[rows], self.coef_.T) + self.intercept_
                batch_loss, g = loss(scores, targets[rows], share * scale)
                value += batch_loss / scale
                gradient = safe_sparse_dot(g.T, X[rows]) + decay * self.coef_
                self.coef_ = self.coef_ - self._steps.step("coef", np.asarray(gradient))
                if self.fit_intercept:
                    self.intercept_ = self.intercept_ - self._steps.step("intercept", g.sum(axis=0))
        # Sums beyond floats are steps of 0, and a loss of NaN one that no longer falls.
        learned = (value, self.coef_, self.intercept_)
        if not (self._steps.is_finite() and all(np.isfinite(part).all() for part in learned)):
            raise ValueError(
                f"after {self.n_iter_} epochs of sgd the coefficients or the loss are beyond "
                f"floats: scale the features, lower rate, {self.rate:g}, or raise C, {self.C:g}"
            )
        return value

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"{self.solver} did not converge in {self.n_iter_} iterations; scale the features, or "
            f"change {what}",
            ConvergenceWarning,
            stacklevel=3,
        )

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
        """The scores (n, K); for two classes the second's minus the first's, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, K), which sum to 1 in each row and are zero for most classes."""
        scores = self._scores(X)
        if self.loss != ONE_VS_ALL:
            return np.asarray(pe.entmax(scores, alpha_of(self.loss)))
        p = pe.entmax_sigmoid(scores, 1.5)
        whole = p.sum(axis=1, keepdims=True)
        return np.where(whole > 0, p / np.where(whole > 0, whole, 1), 1 / p.shape[1])

    def predict(self, X: Any) -> Any:
        """The label with the highest score for each sample."""
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    def calibrate(self, X: Any, y: ArrayLike) -> FenchelYoungClassifier:
        """Learn from labelled samples that were not trained on how large sets have to be.

        Parameters
        ----------
        X : (n, n_features) array or SciPy sparse matrix
        y : (n,) labels
        """
        scores = self._scores(X)
        y = np.asarray(y)
        if y.shape != (len(scores),):
            raise ValueError(f"y: expected {len(scores)} labels, got shape {y.shape}")
        check_classification_targets(y)
        _distinct(np.concatenate([self.classes_, y]))  # of one kind
        place = np.searchsorted(self.classes_, y)
        wrong = self.classes_[np.minimum(place, len(self.classes_) - 1)] != y
        if wrong.any():
            raise ValueError(f"y: expected the classes {self.classes_}, got {y[wrong][0]}")
        alpha = self._sparse_alpha()
        needed = support_scores(scores, alpha)
        self.calibration_scores_ = np.sort(np.take_along_axis(needed, place[:, None], axis=1)[:, 0])
        self.calibration_alpha_ = alpha
        return self

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """A set of labels for each sample that holds the right one with a given probability.

        The sets are supports: of entmax(z/q), where the temperature q is such that the supports of
        the samples given to `calibrate` held the right labels often enough. Whatever the model and
        the distribution, a new sample from the same one has its label in its set with at least that
        probability (split conformal prediction).

        Parameters
        ----------
        X : as for `fit`
        coverage : float
            Between 0 and 1.

        Returns
        -------
        (n, K) bool array
            True for the labels of the set, in the order of ``classes_``.

        Raises
        ------
        ValueError
            If `calibrate` was not called since the last `fit`, `partial_fit` or change of the loss,
            the loss has no supports, or the coverage is out of range.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage: expected a number between 0 and 1, got {coverage}")
        scores = self._scores(X)
        alpha = self._sparse_alpha()
        if not hasattr(self, "calibration_scores_"):
            raise ValueError("predict_set: expected calibrate(X, y) before it")
        if (known := getattr(self, "calibration_alpha_", None)) != alpha:
            raise ValueError(
                "predict_set: expected calibrate(X, y) before it, since the loss changed after the "
                f"last one: that was for α = {known}, loss is now {self.loss!r}"
            )
        largest = quantile(self.calibration_scores_, coverage)
        # Scores round otherwise in another batch: a sample seen again must not lose its label.
        return np.asarray(support_scores(scores, alpha, rounding=1e-10) <= largest)

    def _sparse_alpha(self) -> float:
        if self.loss == ONE_VS_ALL or alpha_of(self.loss) == 1:
            raise ValueError(
                "loss: prediction sets are supports, expected an α-entmax with α > 1, got "
                f"{self.loss!r}"
            )
        return alpha_of(self.loss)

    def __sklearn_tags__(self) -> Any:
        """That sparse matrices are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class AdaGrad:
    """Steps that shrink with the root of the sum of squared gradients (Duchi et al. 2011).

    The sums go on from those of another one, which keeps its own.
    """

    def __init__(self, rate: float, after: AdaGrad | None = None) -> None:
        self.rate = rate
        self._squares: dict[str, Floats] = {} if after is None else dict(after._squares)

    def step(self, name: str, gradient: Floats) -> Floats:
        """What to subtract from the parameters of that name."""
        self._squares[name] = self._squares.get(name, 0) + gradient**2
        return np.asarray(self.rate * gradient / (np.sqrt(self._squares[name]) + 1e-10))

    def is_finite(self) -> bool:
        """Whether the sums are numbers that a float can hold; a step is 0 where they are not."""
        return all(bool(np.isfinite(squares).all()) for squares in self._squares.values())


def _distinct(y: Any) -> Any:
    """The labels, each once, in ascending order; a ValueError where they have none."""
    try:
        return np.unique(y)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise ValueError(f"y: expected labels of one kind, got {' and '.join(kinds)}") from None


def _known(classes: ArrayLike, of_columns: bool) -> Any:
    """The labels in ascending order, in which they have to be given as the names of columns."""
    given = column_or_1d(classes)
    with warnings.catch_warnings():
        # Labels that are all different would pass for those of a regression.
        warnings.simplefilter("ignore")
        check_classification_targets(given)
    ascending = np.unique(given)
    if of_columns and not np.array_equal(given, ascending):
        raise ValueError(
            "classes: expected the labels of y's columns in ascending order, that of classes_, "
            f"got {given}"
        )
    return ascending


Loss = Callable[[Floats, Any, Floats], tuple[float, Floats]]


def alpha_of(loss: str | float) -> float:
    """The α of a loss by its name or its number; a ValueError if there is none."""
    if isinstance(loss, str) and loss in ALPHAS:
        return ALPHAS[loss]
    if is_number(loss) and 1 <= float(loss) < math.inf:
        return float(loss)
    raise ValueError(
        f"loss: expected one of {', '.join(ALPHAS)}, {ONE_VS_ALL} or a finite α from 1 up, got "
        f"{loss!r}"
    )


def loss_of(loss: str | float) -> Loss:
    """The function from scores, targets and weights to the weighted sum and its gradient."""
    alpha = 1.5 if loss == ONE_VS_ALL else alpha_of(loss)
    of_rows = pe.one_vs_all_loss_and_grad if loss == ONE_VS_ALL else pe.entmax_loss_and_grad

    def weighted(scores: Floats, targets: Any, weight: Floats) -> tuple[float, Floats]:
        return of_rows(scores, targets, alpha, reduction="sum", weight=weight)

    return weighted
