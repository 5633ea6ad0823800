"""The oracle of the tables is what the papers print."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import truth
from backends import CASES

import pyentmax as pe

FINITE = [case for case in CASES if case[1:] not in ((np.inf,), (1e-9,), (1 + 1e-12,), (1.001,))]
every_case = pytest.mark.parametrize("case", FINITE, ids=str)
UPPER = np.array([0.5, 0.1, 1.0, 0.0, 0.3, 0.9])


def scores(name: str) -> np.ndarray:
    count = 1 if name == "fusedmax" else 8  # its textbook descends for a fifth of a second
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 6)) * np.geomspace(4, 0.1, count)[:, None]


@every_case
def test_values_are_the_textbooks(case: tuple) -> None:
    name, *value = case
    alpha_is_1 = case == ("entmax", 1)  # whose textbook divides by α − 1
    mapping = pe.MAPPINGS["softmax" if alpha_is_1 else name]
    for given in [value, [UPPER]] if name in ("csoftmax", "csparsemax") else [value]:
        z = scores(name)
        p = truth.forward(name, z, *given).astype(float)
        book = [mapping.textbook(row, *([] if alpha_is_1 else given)) for row in z]
        np.testing.assert_allclose(p, book, rtol=0, atol=1e-11)
        if name in ("fusedmax", "oscarmax", "topk_sparsemax"):  # of ties and of the k largest
            continue
        v = np.cos(np.arange(6))
        slope = truth.slope(lambda t: truth.forward(name, z + t * v.astype(truth.Wide), *given))  # noqa: B023
        jacobian = mapping.jacobian.textbook
        book = [jacobian(row, *([] if alpha_is_1 else given)) @ v for row in p]
        np.testing.assert_allclose(slope.astype(float), book, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", [c for c in FINITE if pe.MAPPINGS[c[0]].loss.is_defined], ids=str)
def test_losses_are_the_textbooks(case: tuple) -> None:
    name, *value = case
    if case == ("entmax", 1):
        name, value = "softmax", []
    z = scores(name)
    for y in (0, 3):
        found = truth.loss(name, z, np.eye(6)[[y] * len(z)], *value).astype(float)
        book = [pe.MAPPINGS[name].loss.textbook(row, y, *value) for row in z]
        np.testing.assert_allclose(found, book, rtol=1e-9, atol=1e-10)


def test_limits_are_closed_forms() -> None:
    z = np.array([[0.5, 0.25, -3.0], [1.0, 1.0, 0.0]])
    np.testing.assert_allclose(
        truth.forward("entmax", z, 1 + 1e-12).astype(float), pe.softmax(z), rtol=1e-11
    )
    assert truth.forward("entmax", z, np.inf).tolist() == [[1, 0, 0], [0.5, 0.5, 0]]
    np.testing.assert_allclose(
        truth.forward("normmax", z, np.inf).astype(float), [[0.5, 0.5, 0]] * 2, rtol=1e-15
    )
    # At α → 0 all p_i are 1/(c − z_i).
    p = truth.forward("entmax", z, 1e-9).astype(float)
    np.testing.assert_allclose(np.ptp(1 / p + z, axis=-1), 0, rtol=0, atol=1e-6)


def test_masked_and_spoilt_rows() -> None:
    z = np.array([[1.0, np.nan, 0.5], [np.nan, 0, 0], [np.inf, 0, 0], [1, 2, 3]])
    mask = np.array([[1, 0, 1], [1, 1, 1], [1, 1, 1], [0, 0, 0]], bool)
    p = truth.forward("sparsemax", z, mask=mask).astype(float)
    np.testing.assert_array_equal(p, [[0.75, 0, 0.25], [np.nan] * 3, [np.nan] * 3, [0] * 3])


def test_a_rounding_too_many_is_wrong() -> None:
    for case in CASES:
        name, *value = case
        if name in ("topk_sparsemax", "topk_softmax") or value == [np.inf]:
            continue
        z = np.random.default_rng(3).standard_normal((4, 7)).astype(np.float32) / 3
        best = truth.forward(name, z, *value)
        p = best.astype(np.float32)
        assert not truth.wrong(name, p, best, z, *value).any()
        spoilt = p + 1e-3 * np.eye(7, dtype=np.float32)[3]
        assert truth.wrong(name, spoilt, best, z, *value)[:, 3].all(), case


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_slopes_in_alpha_are_the_textbooks(alpha: float) -> None:
    z = scores("entmax")[::2]
    best = truth.slope(lambda t: truth.forward("entmax", z, truth.Wide(alpha) + t))
    p = truth.forward("entmax", z, alpha).astype(float)
    book = [pe.entmax.parameter_slope.textbook(row, alpha) for row in p]
    np.testing.assert_allclose(best.astype(float), book, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mapping", pe.MAPPINGS.values(), ids=pe.MAPPINGS.keys())
def test_every_mapping_has_a_short_textbook(mapping: pe.Mapping) -> None:
    assert mapping.textbook is not None
    assert mapping.jacobian.textbook is not None
    assert (mapping.loss.textbook is not None) == mapping.loss.is_defined
    books = (mapping.textbook, mapping.jacobian.textbook, mapping.loss.textbook)
    slope = mapping.parameter_slope
    for book in (*books, slope.textbook if slope.is_defined else None):
        for key in mapping.parameters if book else ():
            own, its = (inspect.signature(f).parameters[key].default for f in (mapping, book))
            assert own == its, f"{key} of {book.__name__}"
    lines = [
        line
        for book in books
        if book is not None
        for line in inspect.getsource(book).partition('    """\n')[2].splitlines()
    ]
    assert len(lines) <= 25, f"{mapping.name}: a student can copy fifteen lines, not {len(lines)}"
