"""Progress of a run: a bar, or lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def _on_screen() -> bool:
    """Whether a bar would be seen: on a terminal or in a notebook."""
    # Standard error is None where it was closed before Python started.
    return (sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "the progress bar needs tqdm: pip install 'pyentmax[models]', or pass progress=False "
            "(--quiet)"
        ) from None
    return tqdm


@contextmanager
def counting(total: int | None, unit: str, show: bool = True) -> Iterator[Callable[[int], Any]]:
    """A progress bar for work that may be short: it appears after two seconds.

    Parameters
    ----------
    total : int or None
        Number of units to do, if it is known.
    unit : str
        What is counted: "word".
    show : bool
        False shows no bar. Without a screen there is none either.

    Yields
    ------
    callable
        To be called with the number of units just done.
    """
    if not (show and _on_screen()):
        yield lambda _: None
        return
    with _tqdm()(total=total, unit=unit, delay=2, mininterval=0.5, leave=False) as bar:
        yield bar.update


class Progress:
    """A bar on a terminal or in a notebook; in a log, a line per validation."""

    def __init__(self, total: int, done: int, show: bool) -> None:
        self.total = total
        self.show = show
        self.bar: Any = None
        if show and _on_screen():
            self.bar = _tqdm()(total=total, initial=done, unit="update", mininterval=0.5)

    def updated(self, figures: Callable[[], str]) -> None:
        """One more update is done."""
        # update() is True when the bar is redrawn.
        if self.bar is not None and self.bar.update(1):
            self.bar.set_postfix_str(figures())

    def validated(self, updates: int, figures: str) -> None:
        """One more validation is done."""
        if self.show and self.bar is None:
            print(f"{updates:6d}/{self.total} updates, {figures}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
