"""A CUDA kernel, in one of the forms it has, in the place of its twin on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import emulated_cupy  # noqa: F401  # which finds fake_cupy
import numpy as np
from fake_cupy import moved
from kernel_calls import call_kernel
from kernel_runs import KERNELS, RowLayout
from number_types import FLOAT16, FLOAT32, FLOAT64, NumberType

sys.path.append(str(Path(__file__).parents[1] / "cpu"))
from kernel_contract import assert_contract, results, truth  # noqa: E402
from kernel_operands import _cpu, operands  # noqa: E402

Arrays = tuple[Any, ...]
BOUNDED = ("csoftmax", "csparsemax", "budget_sparsemax")


def check_rows(name: str, form: RowLayout | None, number: NumberType, z: np.ndarray, seed: int = 0,
               **how: Any) -> None:  # fmt: skip
    """Rows of scores, with what else the CPU's tests draw for them."""
    given = operands(name, number.nearest(z), np.random.default_rng((seed, z.shape[-1])))
    check(name, form, number, given, **how)


def check(
    name: str, form: RowLayout | None, number: NumberType, given: Arrays, **how: Any
) -> Arrays:
    """The kernel keeps its twin's contract for the twin's operands; returns its results.

    `how` is what `Kernel.run` takes, and `in_place` to have the last operand written over.
    """
    found = run(name, form, number, given, **how)
    # Bounds are not stored in the type, but a p at its bound is the bound as it is stored.
    dtype, stored = given[0].dtype, 2 if name in BOUNDED else len(given)
    nearest = (number.nearest(x) if x.dtype == dtype else x for x in given[:stored])
    given = (*nearest, *given[stored:])
    assert_twin(name, number, given, found)
    return found


def run(name: str, form: RowLayout | None, number: NumberType, given: Arrays, *,
        in_place: bool = False, mask: Any = None, alone: bool = False,
        **how: Any) -> Arrays:  # fmt: skip
    """The kernel's results, as the type stores them; `mask` is that of a product's operands."""
    if form is None:
        return (run_row_by_row(name, number, given),)
    kernel, first, *further = KERNELS[name], number.rounded(given[0]), *given[1:]
    upper = [further.pop()] if name.startswith(("csoftmax", "csparsemax")) else []
    out = np.empty_like(first)
    if kernel.family == "derivative":
        v = None if name.endswith("grad_alpha") else number.rounded(further.pop(0))
        out = v if in_place and v is not None else out
        upper = [np.ones((1, 1), number.computed)] if name.startswith("budget") else upper
        arrays = [first, v, *(upper or [None]), mask, out]
    elif kernel.family == "loss":
        mask, label, weight, *further = further
        loss, counted = np.empty((2, len(first), 1))
        arrays = [first, mask, label[:, None], None if alone else out, loss, counted]
        how["weight"] = weight.astype(float)
    else:
        out = first if in_place else out
        upper = [None] if name == "budget_sparsemax" else upper
        mask = further.pop(0)
        mask = None if mask.all() and first.shape[1] % 2 else mask
        arrays = [first, mask, *upper, out]
        if upper and upper[0] is not None:
            further = [1 - 8 * np.finfo(number.computed).eps * first.shape[1] ** 0.5]
    if further:
        how["parameter"] = np.array(np.broadcast_to(further[0], len(first)), float)
    kernel.run(form, number, arrays, **how)
    return (loss[:, 0], counted[:, 0] != 0, out) if kernel.family == "loss" else (out,)


def run_row_by_row(name: str, number: NumberType, given: Arrays) -> np.ndarray:
    """What fusedmax, oscarmax or its product is by kernels that have a row for each thread."""
    first, second, strength = given
    mask = second if second.dtype == bool else None
    arrays = [number.rounded(x) for x in given[: 1 if second.dtype == bool else 2]]
    found = call_kernel(name, *map(moved, (*arrays, strength)), mask=moved(mask))
    return found.get()


def assert_twin(name: str, number: NumberType, given: Arrays, found: Arrays) -> None:
    """The contract of the CPU's kernels, but that subnormal numbers may be zeros.

    Of a half type, the numbers keep it that are nearest to the twin's of all that are rounded to
    the results. Products are compared with the twin's: p, rounded, does not sum to 1.
    """
    best, kept = truth(name, given), []
    half = number not in (FLOAT32, FLOAT64)
    twins = results(getattr(_cpu, name), given) if half and hasattr(_cpu, name) else best
    product = half and name.endswith(("_jvp", "_grad_alpha"))
    for one, twin in zip(found, twins, strict=True):
        wide = one.astype(float) if one.dtype != number.stored else number.exact(one)
        if half and one.dtype == number.stored:
            wide = nearest(number, wide, twin, given[0] if product else None)
        flushed = (wide == 0) & (np.abs(twin) < 2.0**-126)
        wide = np.where(flushed, twin, wide)
        kept.append(wide.astype(bool if one.dtype == bool else number.computed))
    if product:
        np.testing.assert_array_equal(kept[0], twins[0])
    else:
        assert_contract(name, tuple(kept), given, best)


def nearest(number: NumberType, wide: np.ndarray, twin: np.ndarray, p: Any) -> np.ndarray:
    """What lies nearest to the twin's results of what is rounded to these, or all but is."""
    largest = 65504.0 if number is FLOAT16 else 3.3895e38  # beyond, one is infinite
    wide = np.where(np.isinf(wide) & (np.abs(twin) > largest), twin, wide)
    with np.errstate(invalid="ignore"):
        room = number.ulp(wide) / 2
        if p is not None:
            room = room + np.abs(1 - p.sum(axis=-1, keepdims=True))
            room += 2.0**-number.digits * np.abs(twin).max(axis=-1, keepdims=True)
        return np.where(wide == twin, twin, np.clip(twin, wide - room, wide + room))
