"""What the user sees of a run: a progress bar, or lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pyentmax.system.notes import note


def _on_a_screen() -> bool:
    """Whether a bar would be seen as one: on a terminal or in a notebook."""
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


def check_bar(wanted: bool) -> None:
    """Raise an ImportError if a bar is wanted, would be seen, and cannot be shown."""
    if wanted and _on_a_screen():
        _tqdm()


@contextmanager
def counting(total: int, unit: str, wanted: bool = True) -> Iterator[Callable[[int], Any]]:
    """A progress bar for work that may be short: it appears after two seconds.

    Parameters
    ----------
    total : int
        How many there are to do.
    unit : str
        What is counted: "word".
    wanted : bool
        False shows none. Nor is there one where standard error is no screen.

    Yields
    ------
    callable
        To be called with how many more are done.
    """
    if not (wanted and _on_a_screen()):
        yield lambda _: None
        return
    with _tqdm()(total=total, unit=unit, delay=2, mininterval=0.5, leave=False) as bar:
        yield bar.update


class Run(Protocol):
    """What `Progress` needs to know of a run: see the training loop's."""

    history: Any
    updates: int

    @property
    def speed(self) -> str: ...
    @property
    def recent_loss(self) -> float: ...
    def settle(self) -> None: ...


class Progress:
    """A bar on a terminal or in a notebook; in a log, a line per validation."""

    def __init__(self, total: int, initial: int, wanted: bool) -> None:
        self.total, self.wanted = total, wanted
        self.bar: Any | None = None
        if wanted and _on_a_screen():
            self.bar = _tqdm()(total=total, initial=initial, unit="update", mininterval=0.5)

    def updated(self, run: Run) -> None:
        """One more update is done."""
        if self.bar is not None:
            # True when the bar is redrawn: only then does the host wait for a GPU.
            if self.bar.update(1):
                run.settle()
                self.bar.set_postfix_str(self._figures(run, run.recent_loss))

    def validated(self, run: Run) -> None:
        """One more validation is done."""
        if self.wanted and self.bar is None:
            figures = self._figures(run, run.history.loss[-1])
            note(f"{run.updates:6d}/{self.total} updates, {figures}")

    def _figures(self, run: Run, loss: float) -> str:
        figures = f"{run.speed}, loss {loss:.4f}"
        if run.history.dev_accuracy:
            figures += f", dev {100 * run.history.dev_accuracy[-1]:.1f}%"
        return figures

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
