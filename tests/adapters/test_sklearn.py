"""The classifier for scikit-learn: its conventions, its optimum, its probabilities."""

import pickle

import numpy as np
import pytest

import pyentmax as pe

pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed; pip install 'pyentmax[sklearn]'"
)
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import (
    ConvergenceWarning,
    NotFittedError,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from pyentmax.sklearn import FenchelYoungClassifier

X, Y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
LOSSES = ["softmax", 1.25, "entmax15", "sparsemax", 3.0, "one-vs-all"]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["entmax15", "one-vs-all"])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks_pass(loss):
    # It asks for probabilities above 0, and these are sparse.
    above = "check_classifiers_multilabel_output_format_predict_proba"
    expected = {above: "zeros"} if loss == "one-vs-all" else {}
    check_estimator(FenchelYoungClassifier(loss), expected_failed_checks=expected)


def test_softmax_loss_is_logistic_regression():
    for c in (0.1, 10):
        ours = FenchelYoungClassifier("softmax", C=c, tol=1e-9).fit(X, Y)
        theirs = LogisticRegression(C=c, tol=1e-10, max_iter=10_000).fit(X, Y)
        np.testing.assert_allclose(
            ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5, rtol=1e-7
        )


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_zero_at_the_solution(loss):
    from pyentmax.sklearn.classifier import weighted_loss

    c = 0.7
    fitted = FenchelYoungClassifier(loss, C=c, tol=1e-8, max_iter=5000).fit(X, Y)
    scores = X @ fitted.coef_.T + fitted.intercept_
    _, g = weighted_loss(loss)(scores, Y, np.full(len(Y), c))
    gradient = np.concatenate([fitted.coef_ + g.T @ X, g.sum(axis=0)[:, None]], axis=1)
    assert np.abs(gradient).max() < 1e-4  # the minimum of a convex function
    for thin in (sparse.csr_matrix(X), sparse.csc_array(X)):
        again = FenchelYoungClassifier(loss, C=c, tol=1e-8, max_iter=5000).fit(thin, Y)
        np.testing.assert_allclose(again.coef_, fitted.coef_, rtol=0, atol=1e-5)
        np.testing.assert_allclose(fitted.decision_function(thin), scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", ["softmax", 1.25, "one-vs-all"])
def test_probabilities_are_sparse_distributions(loss):
    digits, labels = load_digits(return_X_y=True)
    fitted = FenchelYoungClassifier(loss, C=0.1, tol=1e-4).fit(digits / 16, labels)
    p = fitted.predict_proba(digits / 16)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-7)
    zeros = (p == 0).mean()
    assert zeros == 0 if loss == "softmax" else zeros > 0.1
    assert fitted.score(digits / 16, labels) > 0.9
    np.testing.assert_array_equal(p.argmax(axis=1), fitted.predict(digits / 16))


def test_labels_of_any_kind_and_distributions():
    names = np.array(["one", "two", "three"])[Y]
    by_name = FenchelYoungClassifier().fit(X, names)
    assert set(by_name.classes_) == {"one", "two", "three"}
    assert by_name.score(X, names) > 0.95
    certain = FenchelYoungClassifier().fit(X, np.eye(3)[Y])
    np.testing.assert_allclose(
        certain.coef_, FenchelYoungClassifier().fit(X, Y).coef_, atol=1e-4, rtol=1e-7
    )
    soft = 0.8 * np.eye(3)[Y] + 0.2 / 3
    unsure = FenchelYoungClassifier("softmax", C=1e4).fit(X[:, :1] * 0, soft)
    np.testing.assert_allclose(
        unsure.predict_proba(X[:1, :1]), soft.mean(axis=0)[None], atol=1e-3, rtol=1e-7
    )


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_one_vs_all_predicts_each_label_of_several(labels):
    y = np.stack([Y == 0, Y > 0, Y == 2], axis=1)[:, -labels:].astype(int)
    y = np.pad(y, ((0, 0), (0, labels == 1)))  # one column would be labels
    fitted = FenchelYoungClassifier("one-vs-all").fit(X, y)
    scores = X @ fitted.coef_.T + fitted.intercept_
    np.testing.assert_allclose(fitted.decision_function(X), scores, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(X), pe.entmax_sigmoid(scores), rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X), scores > 0)
    assert fitted.score(X, y) == (fitted.predict(X) == y).all(axis=1).mean() > 0.9
    for thin in (sparse.csr_matrix(y), sparse.csr_array(y)):
        again = FenchelYoungClassifier("one-vs-all").fit(X, thin)
        np.testing.assert_array_equal(again.coef_, fitted.coef_)
    assert FenchelYoungClassifier("one-vs-all").fit(X, Y).predict(X).shape == Y.shape


@pytest.mark.parametrize("loss", LOSSES)
def test_logarithms_are_those_of_the_probabilities(loss):
    fitted = FenchelYoungClassifier(loss, C=10).fit(X, Y)
    with np.errstate(divide="ignore"):
        expected = np.log(fitted.predict_proba(X))
    np.testing.assert_allclose(fitted.predict_log_proba(X), expected, rtol=1e-9, atol=1e-12)


def test_two_classes_have_one_decision():
    two = Y < 2
    fitted = FenchelYoungClassifier("sparsemax").fit(X[two], Y[two])
    decision = fitted.decision_function(X[two])
    assert decision.shape == (100,)
    np.testing.assert_array_equal(decision > 0, fitted.predict(X[two]) == 1)
    p = pe.sparsemax(np.stack([np.zeros(100), decision], axis=1))
    np.testing.assert_allclose(fitted.predict_proba(X[two]), p, atol=1e-12, rtol=1e-7)


def test_weights_count_as_repetitions():
    times = np.random.default_rng(0).integers(0, 4, size=len(Y))
    weighted = FenchelYoungClassifier(tol=1e-9).fit(X, Y, sample_weight=times)
    repeated = FenchelYoungClassifier(tol=1e-9).fit(X.repeat(times, axis=0), Y.repeat(times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5, rtol=1e-7)
    balanced = FenchelYoungClassifier(class_weight="balanced", tol=1e-9)
    weighted, repeated = (
        balanced.fit(X, Y, sample_weight=times).coef_,
        balanced.fit(X.repeat(times, axis=0), Y.repeat(times)).coef_,
    )
    np.testing.assert_allclose(weighted, repeated, atol=1e-5, rtol=1e-7)
    by_class = FenchelYoungClassifier(class_weight={0: 1, 1: 3, 2: 1}, tol=1e-9).fit(X, Y)
    by_sample = FenchelYoungClassifier(tol=1e-9).fit(X, Y, np.where(Y == 1, 3, 1))
    np.testing.assert_allclose(by_class.coef_, by_sample.coef_, atol=1e-5, rtol=1e-7)


def test_prediction_from_overflowing_scores_is_an_error():
    """Each was the first class."""
    fitted = FenchelYoungClassifier().fit(X, Y)
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(ValueError, match="scores are beyond floats"):
            getattr(fitted, method)(np.full_like(X, 1.7e308))


def test_pipelines_searches_calibration_and_pickling():
    model = make_pipeline(StandardScaler(), FenchelYoungClassifier("sparsemax"))
    assert model.fit(*load_iris(return_X_y=True)).score(*load_iris(return_X_y=True)) > 0.95
    grid = {"loss": np.array(["softmax", "sparsemax"]), "C": np.array([1e-4, 1.0])}
    search = GridSearchCV(FenchelYoungClassifier(), grid, cv=3).fit(X, Y)
    assert search.best_params_["C"] == 1
    assert search.best_score_ > 0.9
    calibrated = CalibratedClassifierCV(FenchelYoungClassifier("sparsemax"), cv=3).fit(X, Y)
    assert calibrated.score(X, Y) > 0.9
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(X), search.predict_proba(X))


def test_warm_start_goes_on_from_the_last_fit():
    cold = FenchelYoungClassifier(C=2, tol=1e-6).fit(X, Y)
    warm = FenchelYoungClassifier(tol=1e-6, warm_start=True).fit(X, Y).set_params(C=2).fit(X, Y)
    assert warm.fit(X, Y).n_iter_ == 1 < cold.n_iter_
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=0, atol=1e-3)
    other = FenchelYoungClassifier(tol=1e-6).fit(X, -Y)
    np.testing.assert_array_equal(warm.set_params(C=1).fit(X, -Y).coef_, other.coef_)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"loss": "hinge"}, Y, "loss: expected one of"),
        ({"loss": [1.5]}, Y, r"a finite α above 0, got \[1.5\]"),
        ({"loss": 0}, Y, "a finite α above 0, got 0"),
        ({"penalty": "l1"}, Y, "penalty: expected"),
        ({"C": 0}, Y, "C: expected a number above 0, got 0"),
        ({"C": "x"}, Y, "C: expected a number above 0, got 'x'"),
        ({"tol": np.inf}, Y, "tol: expected a number above 0"),
        ({"max_iter": 0.5}, Y, "max_iter: expected a positive whole number, got 0.5"),
        ({"class_weight": {0: 0, 1: 0, 2: 0}}, Y, "a sum above 0 .* the sum 0"),
        ({"class_weight": "balanced"}, np.eye(3)[Y], "expected labels"),
        ({}, Y * 0, "one class"),
    ],
)
def test_wrong_arguments_are_errors(settings, y, message):
    with pytest.raises(ValueError, match=message):
        FenchelYoungClassifier(**settings).fit(X, y)


def test_unfitted_estimators_raise():
    for method in ("predict", "predict_log_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(FenchelYoungClassifier(), method)(X)


def test_failed_fits_warn():
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        FenchelYoungClassifier(max_iter=2).fit(X, Y)
    # The model of zeros came back without a word.
    with pytest.warns(ConvergenceWarning, match="scale the features"):
        FenchelYoungClassifier().fit(X * 1e200, Y)


def test_infinite_C_means_no_penalty():
    found = FenchelYoungClassifier(C=np.inf, tol=1e-6).fit(X, Y)
    free = FenchelYoungClassifier(penalty=None, tol=1e-6).fit(X, Y)
    np.testing.assert_allclose(found.coef_, free.coef_, rtol=1e-6, atol=1e-9)
