"""The exercises' checks: they say what is still to do, and fail on what is wrong.

A check compares the reader's function with the library's, so the library's own function would pass
it. ``own=`` refuses that, however it is wrapped, and hands back the function to check:

    with exercise(4, own=my_sparsemax) as my_sparsemax:
        np.testing.assert_allclose(my_sparsemax(z), pyentmax.sparsemax(z), atol=1e-12)

While ``my_sparsemax`` runs, a call of pyentmax or of Python code of SciPy fails with "write it
yourself"; the check itself may call them, and so may functions that it hands to ``my_sparsemax``.
Functions of C, such as most of ``scipy.special``, pass. Several functions are a tuple,
``own=(f, g)`` and ``as (f, g)``. ``without=`` names more functions that the exercise forbids, of
Python or C, by their last name: ``without=("sort", "argsort", "partition", "halley")``.

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

__all__ = ["exercise", "guard"]

REFUSED = {"pyentmax": "pyentmax", "scipy": "SciPy", "puzzles": "the checker's own functions"}
ALLOWED: dict[str, str] = {}  # where an exercise may call all of them


def guard(
    function: Any,
    what: str,
    names: frozenset[str] = frozenset(),
    packages: dict[str, str] = REFUSED,
) -> Callable[..., Any]:
    """The function, made to fail when it calls a package above, or a function with such a name.

    ``what`` is what it is called in the message. Setting ``_active`` to False ends the watch.
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
        """What the check hands over may do what it likes."""
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
        args = tuple(map(released, args))
        kwargs = {name: released(argument) for name, argument in kwargs.items()}
        before, running = sys.getprofile(), 1
        sys.setprofile(watch)
        try:
            return function(*args, **kwargs)
        finally:
            sys.setprofile(before)
            running = 0

    guarded._unguarded, guarded._active = function, True  # type: ignore[attr-defined]
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
    try:
        yield guarded if isinstance(own, tuple) else guarded[0] if guarded else None
    except NotImplementedError:
        print(f"Exercise {number}: to do. Write the function above, then run this cell again.")
    else:
        print(f"Exercise {number}: right.")
    finally:
        for function in guarded:
            function._active = False  # type: ignore[attr-defined]
