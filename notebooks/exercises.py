"""The exercises' checks: they say what is still to do, and fail on what is wrong.

A check compares the reader's function with the library's, so the library's own function would pass
it. ``own=`` refuses that, however it is wrapped, and hands back the function to check:

    with exercise(4, own=my_sparsemax) as my_sparsemax:
        agree(my_sparsemax(z), pyentmax.sparsemax(z), "one row", probabilities=True)

While ``my_sparsemax`` runs, a call of pyentmax or of Python code of SciPy fails with "write it
yourself"; the check itself may call them, and so may functions that it hands to ``my_sparsemax``.
Functions of C, such as most of ``scipy.special``, pass. Arrays are handed over as copies: a
function that works in place is judged by what it returns, and told that it changes its input.
Several functions are a tuple, ``own=(f, g)`` and ``as (f, g)``. ``without=`` names more functions
that the exercise forbids, of Python or C, by their last name: ``without=("sort", "halley")``.

An exercise begins with its number and its level: ``**4 ★★.**`` ★ is paper or a line, ★★ is code,
★★★ is open. tests/test_notebooks.py holds that.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

__all__ = ["agree", "difference", "exercise", "guard", "read"]

REFUSED = {"pyentmax": "pyentmax", "scipy": "SciPy", "puzzles": "the checker's own functions"}
ALLOWED: dict[str, str] = {}  # where an exercise may call all of them
CLOSE = 1e-9

passed: list[str] = []  # what the present check has found right so far


def read(array: Any, indent: str = "") -> str:
    """A number or an array as text, its later rows below the first."""
    return np.array2string(np.asarray(array), precision=3, separator=", ", prefix=indent)


def against(mine: float, due: float) -> str:
    """Both numbers, with as many digits as it takes to tell them apart."""
    digits = next(d for d in (4, 6, 8, 10, 12, 17) if d == 17 or f"{mine:.{d}g}" != f"{due:.{d}g}")
    return f"{mine:.{digits}g}, should be {due:.{digits}g}"


def difference(yours: Any, wanted: Any, is_distribution: bool, close: float = CLOSE) -> str:
    """What is wrong with a result, in words, or nothing."""
    if yours is None:
        return "it returns nothing"
    if isinstance(wanted, tuple):
        if not isinstance(yours, tuple) or len(yours) != len(wanted):
            return f"it should return {len(wanted)} results"
        found = [
            difference(mine, one, False, close) for mine, one in zip(yours, wanted, strict=True)
        ]
        return next((f"result {i}: {what}" for i, what in enumerate(found) if what), "")
    try:
        yours, wanted = np.asarray(yours, float), np.asarray(wanted, float)
    except (TypeError, ValueError):
        return f"it returns {type(yours).__name__}, not numbers"
    if yours.shape != wanted.shape:
        return f"the shape is {yours.shape}, should be {wanted.shape}"
    wrong = ~(np.abs(yours - wanted) <= close * np.maximum(1, np.abs(wanted)))
    if is_distribution:  # here a zero is exact
        wrong |= (wanted == 0) != (yours == 0)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    entry = ("entry " + ", ".join(map(str, place))) if place else "it"
    mine, one = yours[place], wanted[place]
    if not np.isfinite(mine):
        return f"{entry} is {mine}, should be {one:.4g}"
    if is_distribution and one == 0:
        return f"{entry} should be exactly 0, is {mine:.2g}"
    total, due = yours[place[:-1]].sum(), wanted[place[:-1]].sum()
    if is_distribution and abs(total - due) > close:
        where = f"row {', '.join(map(str, place[:-1]))}" if len(place) > 1 else "it"
        return f"{where} sums to {against(total, due)}"
    return f"{entry} is {against(mine, one)}"


def agree(
    yours: Any, wanted: Any, where: str, probabilities: bool = False, close: float = CLOSE
) -> None:
    """Compare a result with what is wanted, and say in words how and where they differ.

    ``where`` says what was tried, as in "right for one row, not for a batch: row 0 sums to 0,
    should be 1". Of ``probabilities`` the sums are compared first, and a zero is exact.
    """
    wrong = difference(yours, wanted, probabilities, close)
    if wrong:
        so_far = f"right for {passed[-1]}, not for {where}" if passed else f"for {where}"
        raise AssertionError(f"{so_far}: {wrong}")
    passed.append(where)


def differ(before: Any, after: Any) -> bool:
    """Whether an array was written into: of arguments, and of what lists and tuples hold."""
    if isinstance(before, np.ndarray):
        return before.tobytes() != after.tobytes()
    return type(before) in (list, tuple) and (
        len(before) != len(after) or any(map(differ, before, after))
    )


def guard(
    function: Any,
    what: str,
    names: frozenset[str] = frozenset(),
    packages: dict[str, str] = REFUSED,
) -> Callable[..., Any]:
    """The function, made to fail when it calls a package above, or a function with such a name.

    ``what`` is what it is called in the message. Setting ``_active`` to False ends the watch.
    The function gets copies of arrays; ``_changed`` says whether it wrote into one.
    """
    function = getattr(function, "_unguarded", function)  # the cell may be run again
    modules = tuple(name for name in names if "." in name)
    running = 0

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            package = module.partition(".")[0]
            used = packages.get(package, frame.f_code.co_name)
            used = next((name for name in modules if f"{module}.".startswith(f"{name}.")), used)
        elif event == "c_call":
            package, used = "", called.__name__
        else:
            return
        if package in packages or used in names:
            refused = f"write it yourself: {what} is done without {used}"
            caller = frame.f_back if event == "call" and used in names else frame
            while caller and caller.f_globals is not getattr(function, "__globals__", None):
                caller = caller.f_back
            if caller and caller.f_code is not function.__code__:  # an earlier one of the reader's
                refused += f", but {caller.f_code.co_name} calls it"
            raise AssertionError(refused)

    def released(argument: Any) -> Any:
        """Copies of arrays; functions that may do what they like, as the check hands them over."""
        if isinstance(argument, np.ndarray):
            return argument.copy()
        if type(argument) in (list, tuple):
            return type(argument)(map(released, argument))
        if not callable(argument):
            return argument

        @functools.wraps(argument, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            watching = sys.getprofile()
            sys.setprofile(None)
            try:
                return argument(*args, **kwargs)
            finally:
                sys.setprofile(watching)

        return call

    @functools.wraps(function, updated=())
    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        if not guarded._active or running:  # type: ignore[attr-defined]  # or it calls itself
            return function(*args, **kwargs)
        copies = released(args)
        named = {name: released(argument) for name, argument in kwargs.items()}
        before, running = sys.getprofile(), 1
        sys.setprofile(watch)
        try:
            return function(*copies, **named)
        finally:
            sys.setprofile(before)
            running = 0
            if differ((args, tuple(kwargs.values())), (copies, tuple(named.values()))):
                guarded._changed = True  # type: ignore[attr-defined]

    guarded._unguarded, guarded._active = function, True  # type: ignore[attr-defined]
    guarded._changed = False  # type: ignore[attr-defined]
    return guarded


@contextmanager
def exercise(
    number: int, *, own: Any = None, without: tuple[str, ...] = (), library: bool = False
) -> Iterator[Any]:
    """Check the code of an exercise; a stub is reported, so that the rest of the notebook runs.

    Parameters
    ----------
    number : int
        Of the exercise.
    own : callable or tuple of callables, optional
        The reader's, which must not call pyentmax.
    without : tuple of str, optional
        Names of other functions that they must not call either, and dotted ones of modules.
    library : bool, default: False
        Whether they may call pyentmax and SciPy, but for those of ``without``.

    Yields
    ------
    callable or tuple of callables or None
        What to check in place of ``own``.

    Raises
    ------
    AssertionError
        From the checks, or where the reader's function calls what it should do itself.
    """
    functions = own if isinstance(own, tuple) else (own,) if own is not None else ()
    names = frozenset(without)
    packages = ALLOWED if library else REFUSED
    guarded = tuple(guard(f, f"exercise {number}", names, packages) for f in functions)
    passed.clear()
    try:
        yield guarded if isinstance(own, tuple) else guarded[0] if guarded else None
    except NotImplementedError:
        print(f"Exercise {number}: to do. Write the function above, then run this cell again.")
    else:
        changes = any(f._changed for f in guarded)  # type: ignore[attr-defined]
        told = " It changes its input, though: work on a copy." if changes else ""
        print(f"Exercise {number}: right.{told}")
    finally:
        for function in guarded:
            function._active = False  # type: ignore[attr-defined]
