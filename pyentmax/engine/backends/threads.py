"""The number of threads that share a call, and where they come from.

The rows of a call are independent, and NumPy lets go of the interpreter while a kernel runs.
So a big input is cut into pieces along its batch, and threads take one piece after the other, the
caller's own among them: each row meets the same code as on one thread, and gets the same bits.

Whether that pays is a matter of time, and how long a row takes depends on the kernel, the scores
and the machine. So the caller's thread does the first eighth alone and times it: other threads
come in if there is enough left for each.

The threads end with the call: to start one takes some tens of microseconds longer than to wake one
that waits, and no thread and no lock is left that a forked child could miss. OpenMP is out of the
question for that reason: its run-time remembers threads that a fork did not copy, and the child
waits for them for ever.
"""

from __future__ import annotations

import contextvars
import operator
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from pyentmax.engine.backends.gufuncs import BLOCK, WORTH_A_COPY, core_dimensions, in_blocks

P = TypeVar("P")

# Minimum remaining work per thread, the caller's included: starting the workers and waiting for the
# last one take 50 to 400 µs, more on a busy machine.
SECONDS_PER_WORKER = 7.5e-4
# Minimum number of entries per thread: with fewer the work is too short, and nothing is timed.
ENTRIES_PER_WORKER = 1 << 19

_TRIAL_FRACTION = 8  # an eighth of a call is timed, to estimate the rest
_SKIP_TRIAL_FACTOR = 16  # × ENTRIES_PER_WORKER: from here on a call takes long enough untimed
_PIECES = 4  # per thread: the fewer, the longer all wait for the slowest
_PLAIN_ARRAYS = (np.ndarray, np.memmap)  # others may have a way of their own with ufuncs

# The settings of `set_workers`, the one that counts last. A generator may be suspended in a `with`
# block and end it after others have begun or ended, so each block removes only itself and what was
# set at once inside of it.
_settings: contextvars.ContextVar[tuple[set_workers, ...]] = contextvars.ContextVar(
    "pyentmax_workers", default=()
)


class set_workers:
    """Set how many threads calls from this thread, and this asyncio task, may use at most.

    It holds at once; with `with`, the number from before is restored at the end of the block.
    Inputs too small to gain from threads stay on one. Without it, a call from the main thread uses
    the CPUs that the process may run on, and one from any other thread, or from a child of
    `multiprocessing`, stays on its own: it is taken to be part of a pool. Only compiled kernels use
    threads; NumPy rules do not.

    Parameters
    ----------
    workers : int
        from 1 up; a negative number counts from that of the CPUs, −1 being all of them

    Raises
    ------
    ValueError
        if workers is 0, or so negative that none is left
    TypeError
        if it is not whole

    Examples
    --------
    >>> with set_workers(2):
    ...     print(get_workers())
    2
    """

    def __init__(self, workers: int) -> None:
        self._count, self._is_open = counted(workers), False
        settings = _settings.get()
        if not any(x._is_open for x in settings[-2:]):  # only the last of them can be restored
            settings = settings[:-2] + settings[-1:]
        _settings.set((*settings, self))

    def __enter__(self) -> None:
        self._is_open = True

    def __exit__(self, *unused: object) -> None:
        settings = _settings.get()
        if self in settings:
            i = settings.index(self)
            _settings.set((*settings[:i], *(x for x in settings[i + 1 :] if x._is_open)))


def get_workers() -> int:
    """The number of threads that a call from this thread may use.

    Examples
    --------
    >>> with set_workers(1):
    ...     print(get_workers())
    1
    """
    if settings := _settings.get():
        return settings[-1]._count
    if threading.current_thread() is not threading.main_thread() or _is_child_of_a_pool():
        return 1
    return _cpus()


def counted(workers: Any) -> int:
    """The number of threads that `workers` stands for."""
    try:
        count = operator.index(workers)
    except TypeError:
        raise TypeError(f"workers must be a whole number, got {workers!r}") from None
    if count < 0:
        count += 1 + _cpus()
    if count < 1:
        raise ValueError(
            f"workers must be 1 or more, or -1 (all {_cpus()} CPUs) to -{_cpus()}, got {workers}"
        )
    return count


def run(
    kernel: Callable[..., Any], operands: Sequence[Any], out: Any = None, workers: Any = None
) -> Any:
    """The result or results of ``kernel(*operands, out=out)``, a generalised ufunc.

    The first operand is as large as any. Where the array `out` shares memory with an operand, other
    than entry upon entry, one thread would read what another had overwritten: NumPy alone sorts
    that out.
    """
    first = operands[0]
    if (
        first.ndim > 2
        and first.size >= WORTH_A_COPY * BLOCK
        and any(cores := core_dimensions(kernel))
    ):
        operands = [in_blocks(x, first, core) for x, core in zip(operands, cores, strict=False)]
    pieces = first.size // ENTRIES_PER_WORKER
    if pieces > 1:
        count = min(pieces, get_workers() if workers is None else workers)
        if count > 1 and all(type(x) in _PLAIN_ARRAYS for x in operands):
            batch = _Batch(kernel, operands)
            if batch.length > 1 and (out is None or not any(_entangled(out, x) for x in operands)):
                return batch.map(count, out)
    return kernel(*operands) if out is None else kernel(*operands, out=out)


def run_pieces(pieces: Iterable[P], start: Callable[[], Callable[[P], None]], workers: int) -> None:
    """Work on every piece, in order, on at most `workers` threads.

    Each thread calls `start` once, for a function with buffers of its own, and that with pieces.
    """
    pending = deque(pieces)
    helpers = min(workers, len(pending)) - 1
    if helpers < 1:
        do = start() if pending else None
        for piece in pending:
            do(piece)  # type: ignore[misc]
        return

    def work() -> None:
        do = start()
        while True:
            try:
                piece = pending.popleft()
            except IndexError:
                return
            do(piece)

    _share(work, helpers, pending.clear)


class _Batch:
    """The operands of a kernel, to be cut along the longest axis of their common batch shape."""

    def __init__(self, kernel: Callable[..., Any], operands: Sequence[Any]) -> None:
        self._kernel, self._operands = kernel, tuple(operands)
        self._core = core_dimensions(kernel)
        self._shape = np.broadcast_shapes(
            *(x.shape[: x.ndim - core] for x, core in zip(operands, self._core, strict=False))
        )
        self.length = max(self._shape, default=0)
        # Counted from the end, where broadcasting aligns shapes.
        self._axis = self._shape.index(self.length) - len(self._shape) if self._shape else -1

    def map(self, count: int, out: Any) -> Any:
        """The results of all pieces, on at most `count` threads."""
        results = self._empty_results() if out is None else (out,)
        start = 0
        if SECONDS_PER_WORKER and self._operands[0].size < _SKIP_TRIAL_FACTOR * ENTRIES_PER_WORKER:
            start = max(1, self.length // _TRIAL_FRACTION)
            before = time.perf_counter()
            self._run(slice(0, start), results)
            remaining = (time.perf_counter() - before) * (self.length / start - 1)
            count = max(1, min(count, int(remaining / SECONDS_PER_WORKER)))
        length = self.length - start
        pieces = min(length, count * _PIECES) if count > 1 else 1
        edges = [start + length * i // pieces for i in range(pieces + 1)]
        slices = [slice(*ends) for ends in pairwise(edges)]
        run_pieces(slices, lambda: lambda rows: self._run(rows, results), count)
        return results[0] if len(results) == 1 else results

    def _run(self, rows: slice, results: tuple[Any, ...]) -> Any:
        """Call the kernel with some rows of its operands, and of its results if there are any."""
        pieces = [
            self._piece(x, core, rows)
            for x, core in zip(self._operands + results, self._core, strict=False)
        ]
        n = len(self._operands)
        out = {"out": tuple(pieces[n:])} if results else {}
        return self._kernel(*pieces[:n], **out)

    def _piece(self, array: Any, core: int, rows: slice) -> Any:
        place = array.ndim - core + self._axis
        if place < 0 or array.shape[place] == 1 < self.length:  # the same for all rows
            return array
        return array[(slice(None),) * place + (rows,)]

    def _empty_results(self) -> tuple[Any, ...]:
        # A call with zero rows tells the dtypes and row shapes of the results.
        nothing = self._run(slice(0, 0), ())
        samples = nothing if isinstance(nothing, tuple) else (nothing,)
        return tuple(np.empty(self._shape + x.shape[len(self._shape) :], x.dtype) for x in samples)


def _entangled(out: Any, operand: Any) -> bool:
    if not np.may_share_memory(out, operand):
        return False
    return (
        out.__array_interface__["data"][0] != operand.__array_interface__["data"][0]
        or out.shape != operand.shape
        or out.strides != operand.strides
    )


def _share(work: Callable[[], None], helpers: int, give_up: Callable[[], None]) -> None:
    """Run `work` here and in `helpers` new threads at once, until all have returned.

    It has to be such that anyone who runs it alone gets everything done, for helpers may come late
    or never. An error in any of them, or an interrupt here, makes the others give up what is left.
    Each works in a copy of the caller's context, where `numpy.errstate` is kept.
    """
    errors: list[BaseException] = []

    def help_out() -> None:
        try:
            work()
        except BaseException as error:  # raised in the caller's thread
            errors.append(error)
            give_up()

    started: list[threading.Thread] = []
    try:
        for _ in range(helpers):
            context = contextvars.copy_context()
            helper = threading.Thread(target=context.run, args=(help_out,), name="pyentmax")
            try:
                helper.start()
            except RuntimeError:  # the system gives no more threads, or the interpreter shuts down
                break
            started.append(helper)
        work()
    finally:
        give_up()  # all is done, or something went wrong
        for helper in started:
            helper.join()
    if errors:
        raise errors[0]


def _is_child_of_a_pool() -> bool:
    """Whether multiprocessing started this process: a worker among others, in all likelihood."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _cpus() -> int:
    """CPUs that this process may run on."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
