"""Keep-sets: the textbooks' definitions on every row, ties, masks, and what is invalid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax import keep

PARAMETERS: dict[str, list[float]] = {
    "epsilon": [0.0, 0.01, 0.2, 1.0],
    "eta": [0.0, 0.01, 0.2, 1.0],
    "min_p": [0.0, 0.05, 0.3, 1.0],
    "top_k": [1, 3, 100],
    "top_n_sigma": [0.0, 0.5, 2.0, 100.0],
    "top_p": [1e-9, 0.5, 0.95, 1.0],
    "typical": [1e-9, 0.5, 0.95, 1.0],
}
CASES = [(name, value) for name, values in PARAMETERS.items() for value in values]
RNG = np.random.default_rng(57)
# Quarters: many ties, and none that is made by rounding.
Z = np.round(4 * RNG.normal(scale=2, size=(60, 9))) / 4


def textbook(name: str, row: np.ndarray, value: float) -> np.ndarray:
    """The definition, of the numbers of a row that are above −∞."""
    live = np.flatnonzero(row > -np.inf)
    result = np.zeros(row.shape, bool)
    if live.size:
        if name == "top_k":
            value = min(int(value), live.size)
        result[live] = getattr(keep, f"textbook_{name}")(row[live], value)
    return result


@pytest.mark.parametrize(("name", "value"), CASES)
def test_sets_are_their_definitions_under_masks(name: str, value: float) -> None:
    function, mask = getattr(keep, name), RNG.random(Z.shape) < 0.7
    mask[0] = False
    for given, offset in [(np.ones_like(mask), 0.0), (mask, 0.0), (mask, 2.0**20)]:
        z = np.where(given, Z + offset, np.nan)
        expected = [textbook(name, row, value) for row in np.where(given, Z, -np.inf)]
        with np.errstate(all="raise", under="ignore"):
            np.testing.assert_array_equal(function(z, value, mask=given), expected)
        np.testing.assert_array_equal(function(z.T, value, 0, mask=given.T).T, expected)
    assert function(Z, value).any(axis=-1).all()
    assert not function(Z, value, mask=mask)[0].any()


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_may_differ_by_row(name: str) -> None:
    function = getattr(keep, name)
    values = np.resize(PARAMETERS[name], len(Z))
    each = [function(row, value) for row, value in zip(Z, values.tolist(), strict=True)]
    np.testing.assert_array_equal(function(Z, values), each)


@pytest.mark.parametrize("name", PARAMETERS)
def test_invalid_rows_keep_all_and_stay_visible(name: str) -> None:
    z = np.array([[np.nan, 0, -1, -np.inf], [np.inf, 0, 1, 2], [3, 2, 1, 0], [-np.inf] * 4])
    kept = getattr(keep, name)(z, PARAMETERS[name][1])
    np.testing.assert_array_equal(kept[:2], [[True, True, True, False], [True] * 4])
    assert not kept[3].any()
    p = pe.softmax(z, mask=kept)
    assert np.isnan(p[:2]).any(axis=-1).all()
    np.testing.assert_array_equal(np.sum(p[2:], axis=-1).round(12), [1, 0])


def test_sets_of_half_types_and_large_scores() -> None:
    for name, values in PARAMETERS.items():
        z = Z.astype(np.float16)
        np.testing.assert_array_equal(
            getattr(keep, name)(z, values[1]), getattr(keep, name)(Z, values[1])
        )
    large = np.array([1e38, 5e37, -1e38], np.float32)
    np.testing.assert_array_equal(keep.top_n_sigma(large, 1), [True, True, False])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("top_k", 0, "k must be at least 1"),
        ("top_k", 2.5, "k must be a whole number"),
        ("top_p", 0, "mass must be above 0 and at most 1, got 0"),
        ("top_p", 1.5, "mass must be above 0 and at most 1, got 1.5"),
        ("typical", np.array([0.5] * 59 + [2]), "mass must be above 0 and at most 1, got 2"),
        ("min_p", -1, "ratio must be at least 0 and at most 1"),
        ("min_p", np.nan, "ratio must be at least 0"),
        ("epsilon", np.array([0.1, 0.2]), "epsilon of shape .* does not broadcast"),
        ("top_n_sigma", -1, "n must be at least 0, got -1"),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(keep, name)(Z, value)


def test_log_probability_of_a_draw_and_its_loss() -> None:
    mask = keep.top_p(Z, 0.7)
    log_p = pe.softmax.log(Z, mask=mask)
    total = np.log(np.where(mask, np.exp(Z), 0).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(log_p[mask], (Z - total)[mask], rtol=1e-12, atol=1e-14)
    label = Z.argmin(axis=-1)
    assert not mask[np.arange(len(Z)), label].any()
    assert np.isinf(pe.softmax.loss(Z, label, mask=mask, reduction="none")).all()
