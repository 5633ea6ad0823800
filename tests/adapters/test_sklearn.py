"""The classifier for scikit-learn: its conventions, its optimum, its probabilities, its sets."""

import pickle

import numpy as np
import pytest

import pyentmax as pe

pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed; pip install 'pyentmax[sklearn]'"
)
from scipy import sparse
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.exceptions import (
    ConvergenceWarning,
    DataConversionWarning,
    NotFittedError,
    UnsetMetadataPassedError,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from pyentmax.sklearn import ConformalClassifier, FenchelYoungClassifier
from pyentmax.sklearn.conformal import support_scores, support_sets

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks_pass_around_a_classifier():
    check_estimator(ConformalClassifier(LogisticRegression()))


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
    """Each was the first class, and the set of labels empty."""
    fitted = FenchelYoungClassifier().fit(X, Y).calibrate(X, Y)
    for method in ("predict", "predict_proba", "decision_function", "predict_set"):
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


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_a_label_enters_the_support_at_its_score(alpha):
    z = 2 * np.random.default_rng(0).normal(size=(50, 6))
    needed = np.stack([support_scores(z, z[:, label], alpha) for label in range(6)], axis=1)
    for temperature in (0.3, 1, 4):
        inside = pe.entmax_support(z / temperature, alpha)
        decided = np.abs(needed / temperature - 1) > 1e-9
        np.testing.assert_array_equal(inside[decided], (needed < temperature)[decided])
        sets = support_sets(z, alpha, temperature)
        np.testing.assert_array_equal(sets[decided], inside[decided])
    assert support_sets(z, alpha, np.inf).all()
    np.testing.assert_array_equal(support_sets(z, alpha, 0.0), z == z.max(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("loss", "coverage"), [(1 + 1e-9, 0.8), ("entmax15", 0.95), ("sparsemax", 0.8), (3.0, 0.95)]
)
def test_sets_have_the_promised_coverage(loss, coverage):
    features, labels = make_classification(
        6000, 20, n_informative=10, n_classes=5, flip_y=0.1, random_state=0
    )
    train_x, rest_x, train_y, rest_y = train_test_split(
        features, labels, train_size=1000, random_state=0
    )
    fitted = FenchelYoungClassifier(loss).fit(train_x, train_y)
    found, sizes = [], []
    for seed in range(10):
        known_x, new_x, known_y, new_y = train_test_split(
            rest_x, rest_y, train_size=1000, random_state=seed
        )
        sets = fitted.calibrate(known_x, known_y).predict_set(new_x, coverage)
        found.append(sets[np.arange(len(new_y)), new_y].mean())
        sizes.append(sets.sum(axis=1).mean())
    # The mean of 10 splits: a standard error of about √(c(1 − c)/1000/10).
    assert np.mean(found) == pytest.approx(coverage, abs=0.015)
    assert 1 < np.mean(sizes) < 5


CLASSIFIERS = {
    "linear": LogisticRegression(),
    "two classes": LogisticRegression(),
    "without scores": KNeighborsClassifier(30),
    "ours": FenchelYoungClassifier("sparsemax"),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_any_pipeline_has_sets_of_the_promised_coverage(name):
    features, labels = make_classification(
        3000, 20, n_informative=10, n_classes=5, flip_y=0.1, random_state=0
    )
    labels = np.array(list("abcde"))[labels % 2 if name == "two classes" else labels]
    wrapped = ConformalClassifier(make_pipeline(StandardScaler(), CLASSIFIERS[name]))
    wrapped.fit(features[:500], labels[:500])
    found = []
    for seed in range(10):
        known_x, new_x, known_y, new_y = train_test_split(
            features[500:], labels[500:], test_size=0.5, random_state=seed
        )
        sets = wrapped.calibrate(known_x, known_y).predict_set(new_x, 0.8)
        assert sets.any(axis=1).all()
        found.append(sets[new_y[:, None] == wrapped.classes_].mean())
    assert np.mean(found) == pytest.approx(0.8, abs=0.02)
    np.testing.assert_array_equal(wrapped.predict(new_x), wrapped.estimator_.predict(new_x))


def test_sets_around_a_fitted_classifier_are_its_own():
    fitted = FenchelYoungClassifier("sparsemax").fit(X, Y)
    own = fitted.calibrate(X, Y).predict_set(X)
    wrapped = ConformalClassifier(fitted, alpha=2).calibrate(X, Y)
    np.testing.assert_array_equal(wrapped.predict_set(X), own)
    assert ConformalClassifier(fitted).predict_proba(X).shape == (150, 3)
    assert not hasattr(ConformalClassifier(LinearSVC().fit(X, Y)), "predict_proba")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fitted: ConformalClassifier(fitted).predict_set(X), r"calibrate\(X, y\) before"),
        (lambda fitted: fitted.calibrate(X, Y).predict_set(X, [0.9, 0.95]), "one number between"),
        (lambda fitted: ConformalClassifier(fitted, alpha=1).calibrate(X, Y), "above 1, got 1"),
        (lambda fitted: ConformalClassifier(LogisticRegression()).calibrate(X, Y), "not fitted"),
        (
            lambda fitted: ConformalClassifier(fitted).calibrate(X, Y).fit(X, Y).predict_set(X),
            r"calibrate\(X, y\) before",
        ),
    ],
)
def test_wrong_uses_of_wrapped_classifiers_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(FenchelYoungClassifier().fit(X, Y))


def test_warm_start_goes_on_from_the_last_fit():
    cold = FenchelYoungClassifier(C=2, tol=1e-6).fit(X, Y)
    warm = FenchelYoungClassifier(tol=1e-6, warm_start=True).fit(X, Y).set_params(C=2).fit(X, Y)
    assert warm.fit(X, Y).n_iter_ == 1 < cold.n_iter_
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=0, atol=1e-3)
    other = FenchelYoungClassifier(tol=1e-6).fit(X, -Y)
    np.testing.assert_array_equal(warm.set_params(C=1).fit(X, -Y).coef_, other.coef_)


@pytest.mark.parametrize("alone", [True, False])
def test_sample_weights_are_routed_to_the_classifier(alone):
    X, y = load_iris(return_X_y=True)
    weight = np.where(y == 2, 1e-6, 1.0)
    right = FenchelYoungClassifier().fit(X, y, sample_weight=weight).predict(X)
    with config_context(enable_metadata_routing=True):
        classifier = FenchelYoungClassifier().set_fit_request(sample_weight=True)
        model = ConformalClassifier(classifier).set_score_request(sample_weight=True)
        fit = model if alone else GridSearchCV(model, {"estimator__C": [1.0]}, cv=2)
        assert (fit.fit(X, y, sample_weight=weight).predict(X) == right).all()
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            ConformalClassifier(FenchelYoungClassifier()).fit(X, y, sample_weight=weight)
    assert not (right == 2).any()


class Named(KNeighborsClassifier):
    """Has names for four features, as of a data frame."""

    def fit(self, X, y):
        super().fit(X, y)
        if self.n_features_in_ == 4:
            self.feature_names_in_ = np.array([*"abcd"], object)
        return self


def test_names_of_features_are_those_of_the_last_fit():
    X, y = load_iris(return_X_y=True)
    model = ConformalClassifier(Named()).fit(X, y)
    assert [*model.feature_names_in_] == [*"abcd"]
    model.fit(X[:, :3], y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 3


@pytest.mark.parametrize(
    "model",
    [FenchelYoungClassifier("sparsemax"), ConformalClassifier(FenchelYoungClassifier())],
)
def test_a_column_of_labels_calibrates(model):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model.fit(X, y).calibrate(X, y[:, None])
    assert model.predict_set(X).any()


def test_calibration_ends_with_its_model():
    """Temperatures of one α were taken for those of another: coverage 0.55 where 0.9 was asked."""
    fitted = FenchelYoungClassifier("entmax15").fit(X, Y).calibrate(X, Y)
    sets = fitted.predict_set(X)
    for loss in ("sparsemax", 1.25):
        fitted.set_params(loss=loss)
        with pytest.raises(ValueError, match=r"calibrate\(X, y\) before it, since α"):
            fitted.predict_set(X)
    fitted.set_params(loss="softmax")
    with pytest.raises(ValueError, match="α > 1"):
        fitted.predict_set(X)
    # The same α by its number is the same loss, and what only fitting reads changes no set.
    fitted.set_params(loss=1.5, C=7, penalty=None, fit_intercept=False)
    np.testing.assert_array_equal(fitted.predict_set(X), sets)
    fitted.set_params(loss="sparsemax").calibrate(X, Y).predict_set(X)
    with pytest.raises(ValueError, match=r"calibrate\(X, y\) before"):
        fitted.fit(X, Y).predict_set(X)


@pytest.mark.parametrize("loss", [1 + 1e-9, "entmax15", 20.0])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_calibration_sample_keeps_its_label(loss):
    """Scores round by the shape and kind of a batch, and a set at its edge lost a label by that."""
    rng = np.random.default_rng(0)
    fitted = FenchelYoungClassifier(loss).fit(rng.normal(size=(9, 20)), [0, 1, 2] * 3)
    for sample in rng.normal(size=(50, 1, 20)):
        last = fitted.decision_function(sample).argmin()
        fitted.calibrate(sample.repeat(30, axis=0), [last] * 30)
        for again in (sample, sample.repeat(7, axis=0), sparse.csr_matrix(sample)):
            assert fitted.predict_set(again)[:, last].all()


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fitted: fitted.predict_set(X), r"calibrate\(X, y\) before"),
        (lambda fitted: fitted.calibrate(X, Y).predict_set(X, 1.0), "between 0 and 1"),
        (lambda fitted: fitted.calibrate(X, Y + 1), "expected the classes"),
        (lambda fitted: fitted.calibrate(X, Y.astype(str).astype(object)), "of one kind, got int"),
        (lambda fitted: fitted.calibrate(X, np.array([0, "a", None] * 50)), "Unknown label type"),
    ],
)
def test_wrong_calibrations_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(FenchelYoungClassifier().fit(X, Y))


def test_unfitted_estimators_raise():
    for method in ("predict", "predict_log_proba", "decision_function", "predict_set"):
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
