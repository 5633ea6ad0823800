"""The training loop: updates, validation, checkpoints, and resuming a run that was cut off.

The loop knows nothing of what is learned: a model gives the loss of a batch, a source gives the
batches, and a function validates (`Trainable` and `BatchSource` in `protocol`).

A run is determined by its configuration, its batches and its seed. The order of the batches and the
dropout masks come from two generators spawned from the seed, schedules go by the number of updates
or the validation loss and never by the clock, and ``last.npz`` holds all of it. On the same
machine, with the same BLAS and thread count, a resumed run gives the same numbers as one that was
never interrupted, to the last digit. (A GPU adds the gradients of an embedding's rows in no fixed
order, which the last digits show.)

It runs where the model's parameters are. On a GPU an update copies its batch there and nothing
back: the loss and the norm of the gradient are summed on the device, and read only for a
validation, a checkpoint or the progress bar; what the model lets one watch, every 20 updates.
"""

from __future__ import annotations

import json
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pyentmax.autograd import Tensor
from pyentmax.calls.devices import array_module
from pyentmax.calls.numbers import for_json
from pyentmax.nn.optim import Adam, clip_gradients
from pyentmax.nn.schedules import HalveOnPlateau, InverseSquareRoot, LinearDecay
from pyentmax.system.blas import limit_blas
from pyentmax.system.files import locked
from pyentmax.system.memory import keep_freed_memory
from pyentmax.training.checkpoint import (
    CheckpointError,
    check_arrays,
    check_number,
    differences,
    load_checkpoint,
    restore_generator,
    save_checkpoint,
    with_prefix,
    without_prefix,
)
from pyentmax.training.config import TrainingConfig
from pyentmax.training.history import History, Validation, restored_history
from pyentmax.training.interrupt import finish_first
from pyentmax.training.progress import Progress, check_bar
from pyentmax.training.protocol import BatchSource, Trainable

LAST, BEST, LOCK = "last.npz", "best.npz", ".lock"
_WRITTEN = "last.npz.new"  # a new run's, until it takes the place of another's
_BEST_BEFORE = ".best.npz.before"  # of that other run
TRAINING_STATE = "training state"
WATCH_EVERY = 20
"""After so many updates the history keeps what the model's ``watched()`` gives."""

Batch = TypeVar("Batch")

# The numbers of a run that last.npz holds as they are.
_NUMBERS = ("updates", "stale", "done_in_epoch", "loss_count", "count", "seconds")


def train(
    model: Trainable[Batch],
    batches: BatchSource[Batch],
    config: TrainingConfig,
    validate: Callable[[Any], Validation],
    *,
    directory: str | Path | None = None,
    save_best: Callable[[Path], None] | None = None,
    keep: str = "best",
    identity: dict[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = True,
    progress: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    save_every: float = 60.0,
    blas_threads: int | None = None,
    pause_after: int | None = None,
) -> History:
    """Train a model in place.

    Parameters
    ----------
    model : Trainable
        Such as an :class:`pyentmax.models.rnn_seq2seq.RNNSeq2Seq`. ``model.params`` is updated in
        place, on the host or on the GPU where it lies.
    batches : BatchSource
        Such as a :class:`pyentmax.data.BucketedPairs`.
    config : TrainingConfig
    validate : callable
        Given the model, returns a :class:`Validation`.
    directory : path, optional
        Where ``last.npz`` and ``best.npz`` go after each validation, and ``last.npz`` in between
        too. None writes nothing.
    save_best : callable, optional
        Given a path, writes the model there, with everything that it takes to use it.
    keep : {"best", "last"}
        Which parameters the model has in the end: those of the best validation, or those of the
        last update.
    identity : dict, optional
        What else makes the run what it is (vocabularies, say), as JSON can hold it: a run is
        resumed only where it is the same. The settings, the shape of the model and the identity of
        the batches are compared in any case, and it says nothing else under a name of theirs.
    resume : bool, default False
        Go on from ``directory/last.npz``.
    overwrite : bool, default True
        Whether a new run may replace one that is in the directory. Its ``best.npz`` goes when the
        new ``last.npz`` comes.
    progress : bool, default True
        Show a bar with examples (or tokens) per second, loss and validation accuracy.
    clock : callable, default `time.perf_counter`
        Measures the seconds. `time.process_time` counts only those that this process computes,
        whatever else runs on the machine.
    save_every : float, default 60
        Seconds of updates, by that clock, after which ``last.npz`` is written between validations:
        a run that is killed repeats no more. The numbers do not depend on it.
    blas_threads : int, optional
        How many threads BLAS may use: 1 unless given, or unless the call stands within a
        :func:`pyentmax.system.blas.limit_blas` block.
    pause_after : int, optional
        Stop when so many updates are done, as Ctrl-C would: a run that is resumed goes on. What is
        learned does not depend on it.

    Raises
    ------
    CheckpointError
        If ``resume`` is asked for and ``last.npz`` is damaged, belongs to another run, or was
        stopped between two validations after more updates than ``config`` has. (Behind a
        validation it counts as finished, and is left as it is.)
    BlockingIOError
        If another process or thread trains in the same directory. (Where files cannot be locked, as
        on Windows, this is not noticed.)
    FloatingPointError
        If a loss or a gradient is no longer finite. The checkpoints stay as they are.
    OSError
        If the checkpoints cannot be written, noticed before the first update.
    ValueError
        If an epoch has no batch, the directory holds a run that is not to be overwritten, a rate
        factor is that of no parameter, the model cannot be trained, or a validation gives no finite
        accuracy.

    Notes
    -----
    On Ctrl-C the current update is finished, ``last.npz`` is written, and the history is returned
    with ``interrupted`` set. A second Ctrl-C stops at once; even then the last checkpoint is
    complete.
    """
    if keep not in ("best", "last"):
        raise ValueError(f"keep: expected 'best' or 'last', got {keep!r}")
    check_pause(pause_after)
    check_bar(progress)
    keep_freed_memory()
    run = _Run(model, batches, config, identity or {}, directory, save_best, clock)
    # The limit comes first: one that is refused leaves the directory as it was.
    with limit_blas(blas_threads, announce=progress), run.alone(resume):
        if resume:
            run.resume()
        else:
            run.start(overwrite)
        with run.withdrawn_if_it_fails():
            run.clear_leftovers()
            shown = Progress(config.updates, run.updates, progress)

            def validate_now() -> None:
                run.settle()
                with np.errstate(over="ignore", invalid="ignore"), run.averaged():  # as in updates
                    run.validated(validate(model))
                run.save()
                shown.validated(run)

            with closing(shown), finish_first() as asked_to_stop:
                if run.ends_unvalidated():
                    validate_now()
                for batches_of_update in run.remaining(pause_after):
                    run.update(batches_of_update)
                    shown.updated(run)
                    if run.validates_here() or run.updates == config.updates:
                        validate_now()
                    elif run.seconds - run.saved_at >= save_every:
                        run.settle()
                        run.save()
                    if asked_to_stop():
                        run.history.interrupted = True
                        run.settle()
                        run.save()
                        break
                if not run.finished() and not run.history.interrupted:
                    run.history.interrupted = True
                    run.settle()
                    run.save()
        run.write_best_again(resume)
        if keep == "best":
            run.take_best()
    return run.history


def check_pause(pause_after: int | None) -> None:
    """Raise a ValueError unless training goes on for an update at least."""
    if pause_after is not None and pause_after < 1:
        raise ValueError(f"pause_after: expected at least 1 update, got {pause_after}")


class _Run:
    """The state of a run: what ``last.npz`` holds."""

    def __init__(
        self,
        model: Trainable[Any],
        batches: BatchSource[Any],
        config: TrainingConfig,
        identity: dict[str, Any],
        directory: str | Path | None,
        save_best: Callable[[Path], None] | None,
        clock: Callable[[], float],
    ) -> None:
        self.model, self.batches, self.config = model, batches, config
        if not model.params:
            raise ValueError("model: expected parameters to be trained, got none")
        if unnamed := [name for name in model.params if not isinstance(name, str)]:
            raise ValueError(f"model: expected texts for the parameters' names, got {unnamed[0]!r}")
        _check_rate_factors(config, model.params)
        if check_trainable := getattr(model, "check_trainable", None):
            check_trainable()
        self.xp = array_module(next(iter(model.params.values())))
        self.directory = None if directory is None else Path(directory)
        self.save_best = save_best
        self.clock = clock
        self.kept = False  # whether last.npz holds an update
        order_seed, dropout_seed = np.random.SeedSequence(config.seed).spawn(2)
        self.order_rng = np.random.default_rng(order_seed)
        self.dropout_rng = np.random.default_rng(dropout_seed)
        self.optimizer = Adam(model.params, config.betas)
        self.schedule = _schedule(config)
        self.history = History()
        self.updates = 0
        self.stale = 0
        # The position in the data: the generator's state before the epoch was drawn, and how many
        # of its batches are done.
        self.epoch_state = self.order_rng.bit_generator.state
        self.done_in_epoch = 0
        # Sums over the updates since the last validation; on a GPU, arrays that stay there.
        self.loss_sum: Any = 0.0
        self.norm_sum: Any = 0.0
        self.loss_count = 0
        self.count = 0
        self.seconds = 0.0
        self.saved_at = 0.0  # seconds when last.npz was written
        self.best: dict[str, Any] | None = None
        # The parameters that are to be averaged, oldest first.
        self.recent: list[dict[str, Any]] = []
        # In the form in which it comes back from a file, so that the two can be compared.
        shapes = {name: list(x.shape) for name, x in model.params.items()}
        whole = {"settings": config.identity(), "model": shapes}
        for name, part in (("batches.identity", batches.identity), ("identity", identity)):
            # One of two would not be compared.
            if other := [key for key in part if key in whole and part[key] != whole[key]]:
                raise ValueError(
                    f"{name}: expected nothing else under the names {', '.join(whole)}; got "
                    f"{other[0]!r}: {str(part[other[0]])[:60]}"
                )
            whole |= part
        self.identity = json.loads(json.dumps(whole, default=for_json))

    def finished(self) -> bool:
        """Whether all updates are done, or patience is exhausted."""
        patience = self.config.patience
        return self.updates >= self.config.updates or (
            patience is not None and self.stale >= patience
        )

    def ends_unvalidated(self) -> bool:
        """Whether a run that was stopped is to end right there, where nothing was validated."""
        return self.updates == self.config.updates and not self._validated_last()

    def validates_here(self) -> bool:
        """Whether a validation is due after as many updates, however long the run is.

        One that comes at the end alone leaves rate, patience and the parameters to be averaged as
        they were: a run that is made longer learns what it would have without it.
        """
        return self._is_due(self.updates)

    def _is_due(self, updates: int) -> bool:
        every = self.config.validate_every or math.ceil(self.config.updates / 10)
        return updates % every == 0

    def _validated_last(self) -> bool:
        """Whether the last thing that was done is a validation."""
        return self.history.update[-1:] == [self.updates]

    @property
    def speed(self) -> str:
        """How much is done per second, with its unit."""
        # A coarse clock may not have moved during the first updates.
        speed = f"{self.count / self.seconds:.0f}" if self.seconds else "?"
        return f"{speed} {self.batches.unit}/s"

    @property
    def recent_loss(self) -> float:
        """Mean training loss since the last validation; waits for a GPU."""
        return float(self.loss_sum) / max(self.loss_count, 1)

    def remaining(self, pause_after: int | None = None) -> Iterator[list[Any]]:
        """The batches of each update, until the run is finished or so many updates are done."""
        batches = self._endless()
        while not self.finished() and (pause_after is None or self.updates < pause_after):
            yield list(islice(batches, self.config.accumulate))

    def _endless(self) -> Iterator[Any]:
        """Batches, epoch after epoch."""
        while True:
            self.epoch_state = self.order_rng.bit_generator.state
            batches = iter(self.batches.epoch(self.order_rng))
            passed = sum(1 for _ in zip(range(self.done_in_epoch), batches, strict=False))
            if passed < self.done_in_epoch:
                where = LAST if self.directory is None else self.directory / LAST
                raise CheckpointError(
                    f"{where}: done_in_epoch: expected at most the {passed} batches of an epoch, "
                    f"got {self.done_in_epoch}"
                )
            for batch in batches:
                # Counted before the batch is used: a checkpoint after it must not repeat it.
                self.done_in_epoch += 1
                yield batch
            if not self.done_in_epoch:
                raise ValueError("batches: expected at least one in each epoch, got none")
            self.done_in_epoch = 0

    def update(self, batches: list[Any]) -> None:
        """One step of the optimiser."""
        with np.errstate(over="ignore", invalid="ignore"):  # told once, by an error, below
            self._update(batches)

    def _update(self, batches: list[Any]) -> None:
        started = self.clock()
        params = {name: Tensor(x, requires_grad=True) for name, x in self.model.params.items()}
        counts = [self._count(batch) for batch in batches]
        mean: Any = 0.0
        if self.updates % WATCH_EVERY == 0:
            self.watch()
        in_training = getattr(self.model, "in_training", None)
        model = self.model if in_training is None else in_training(self.updates)
        for batch, count in zip(batches, counts, strict=True):
            loss = model.loss(params, batch, self.dropout_rng)
            if loss.shape:
                raise ValueError(f"loss: expected a scalar, got one of shape {loss.shape}")
            if len(batches) > 1:
                loss = loss * (count / max(sum(counts), 1))
            if self.xp is np:
                self._must_be_finite("training loss", loss.item())
            # Gradients add up in the parameters; what the batch needed is freed before the next.
            loss.backward()
            mean = mean + loss.data.astype(np.float64)
        gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
        norm = clip_gradients(gradients, self.config.clip)
        if self.xp is np:
            self._must_be_finite("norm of the gradient", norm)
        rate = self.schedule.rate(self.updates)
        self.optimizer.step(gradients, rate, self.config.rate_factors)
        self.updates += 1
        self.loss_sum = self.loss_sum + mean
        self.norm_sum = self.norm_sum + norm
        self.loss_count += 1
        self.count += sum(counts)
        if self.config.average_every is not None and self.updates % self.config.average_every == 0:
            self.remember()
        self.seconds += max(0, self.clock() - started)  # a clock may be put back

    def _count(self, batch: Any) -> int:
        count = self.batches.count(batch)
        try:
            whole = operator.index(count)  # a sum of an array is a number that JSON does not hold
        except TypeError:
            whole = -1
        if whole < 0:
            raise ValueError(f"count: expected a whole number from 0 up, got {count!r:.60}")
        return whole

    def remember(self) -> None:
        """Keep the parameters as they are now among those that are averaged."""
        now = {name: x.copy() for name, x in self.model.params.items()}
        self.recent = [*self.recent, now][-self.config.average :]

    def watch(self) -> None:
        """Record what the model lets one watch, if it does."""
        if watched := getattr(self.model, "watched", None):
            self.history.watch(self.updates, watched())

    def settle(self) -> None:
        """Wait for all updates so far, and raise if something that they computed is not finite.

        A sum with a term that is not finite is not finite either, so that the two sums tell of the
        losses and gradients of every update; on the host, each has been checked already. A step
        too wide can take a parameter beyond the largest number while its loss is finite: then the
        next loss tells, and here, where the state is about to be kept, the parameters do.
        """
        if self.xp is not np:
            started = self.clock()
            self._must_be_finite("training loss", float(self.loss_sum))
            self._must_be_finite("norm of the gradient", float(self.norm_sum))
            self.seconds += max(0, self.clock() - started)
        self._all_must_be_finite(self._arrays())

    def _arrays(self) -> dict[str, Any]:
        """The parameters, and what the optimiser keeps of them, by the names of a checkpoint."""
        params = with_prefix("param", self.model.params)
        return params | with_prefix("optimizer", self.optimizer.state())

    def _all_must_be_finite(self, arrays: dict[str, Any]) -> None:
        for name, x in arrays.items():
            if not isinstance(x, int) and not self.xp.isfinite(x).all():
                self._must_be_finite(f"largest number of {name}", math.inf)

    def _must_be_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            there = "; the checkpoints are those of the last validation"
            raise FloatingPointError(
                f"the {what} is {value} at update {self.updates}: a smaller rate than "
                f"{self.config.rate} or stronger clipping than {self.config.clip} may help"
                f"{there if self.history.update else ''}"
            )

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it, the model has the mean of its parameters that are kept for that."""
        if self.config.average == 1:
            yield
            return
        kept = self.recent
        if self.config.average_every is None:
            self.remember()
        now = {name: x.copy() for name, x in self.model.params.items()}
        averaged = self.recent or [now]
        for name, x in self.model.params.items():
            x[...] = sum(then[name] for then in averaged) / len(averaged)
        try:
            self._all_must_be_finite(self.model.params)  # their sum may not have been
            yield
        finally:
            for name, x in self.model.params.items():
                x[...] = now[name]
            if not self.validates_here():
                self.recent = kept

    def validated(self, validation: Validation) -> None:
        """Record a validation, and keep the parameters if they are the best."""
        try:  # of an array in float32, a mean is a NumPy number, which JSON does not hold
            if any(isinstance(x, str | bytes) for x in validation):
                raise TypeError("a text is no number, whatever it says")
            validation = Validation(*(float(x) for x in validation))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"validate: expected a loss and an accuracy, got {validation!r:.80}"
            ) from error
        self._must_be_finite("mean training loss", self.recent_loss)
        self._must_be_finite("validation loss", validation.loss)
        if not math.isfinite(validation.accuracy):
            raise ValueError(f"validate: expected a finite accuracy, got {validation.accuracy}")
        history = self.history
        improved = validation.accuracy > history.best_accuracy
        if self.validates_here():
            before = zip(history.update, history.dev_accuracy, strict=True)
            due = [accuracy for update, accuracy in before if self._is_due(update)]
            self.stale = 0 if validation.accuracy > max(due, default=-math.inf) else self.stale + 1
            self.schedule.on_validation(validation.loss)
        history.update.append(self.updates)
        history.loss.append(self.recent_loss)
        history.dev_loss.append(validation.loss)
        history.dev_accuracy.append(validation.accuracy)
        history.seconds.append(self.seconds)
        self.loss_sum, self.norm_sum, self.loss_count = 0.0, 0.0, 0
        if improved:
            if self.directory is not None and self.save_best is not None:
                self.save_best(self.directory / BEST)
            self.best = {name: x.copy() for name, x in self.model.params.items()}

    def take_best(self) -> None:
        """Put the parameters of the best validation into the model."""
        if self.best is not None:
            for name, x in self.best.items():
                self.model.params[name][...] = x

    def write_best_again(self, resumed: bool) -> None:
        """Write ``best.npz`` again if it may be lost or damaged: ``last.npz`` has it all, too."""
        if self.directory is None or self.save_best is None or self.best is None:
            return
        if resumed or not (self.directory / BEST).exists():
            now = {name: x.copy() for name, x in self.model.params.items()}
            self.take_best()
            try:
                self.save_best(self.directory / BEST)
            finally:
                for name, x in now.items():
                    self.model.params[name][...] = x

    def clear_leftovers(self) -> None:
        """Remove what a process left behind that was killed while saving."""
        if self.directory is not None:
            for name in (LAST, BEST):
                for path in self.directory.glob(f".{name}.*.tmp"):
                    path.unlink()
            (self.directory / _WRITTEN).unlink(missing_ok=True)
            if self.updates:
                (self.directory / _BEST_BEFORE).unlink(missing_ok=True)

    @contextmanager
    def alone(self, resume: bool) -> Iterator[None]:
        """Within it, no other run can be in the directory: each would write over the other."""
        if self.directory is None or (resume and not self.directory.exists()):
            yield
            return
        what = f"another process trains in {self.directory}: wait for it, or give another folder"
        with locked(self.directory / LOCK, what, wait=False):
            yield

    def start(self, overwrite: bool) -> None:
        """Begin a new run, with its first ``last.npz``.

        A ``best.npz`` that is there is another run's, and beside this ``last.npz`` it would be
        taken for this one's. It is put out of the way when the new file is written, and right
        before that takes its place: between the two, the old ``last.npz`` has that run's best
        parameters too, whatever kills this one.
        """
        if not overwrite and self.directory is not None:
            # Callers have looked before; another run may have come and gone since.
            if any((self.directory / name).exists() for name in (LAST, BEST)):
                raise ValueError(f"{self.directory} already holds a run: resume it, or move it")
        if self.directory is None:
            return
        best, written = self.directory / BEST, self.directory / _WRITTEN
        is_to_be_put_away = best.exists() and not self._older_best_is_put_away()
        try:
            self.save(written)
            if is_to_be_put_away:
                best.replace(self.directory / _BEST_BEFORE)
            else:  # one that is there already is kept
                best.unlink(missing_ok=True)
            written.replace(self.directory / LAST)
        except BaseException:
            if written.exists():  # otherwise it has taken its place, or was never there
                if is_to_be_put_away:
                    self.put_best_back()
                written.unlink(missing_ok=True)
            raise

    def _older_best_is_put_away(self) -> bool:
        """Whether the best model of an older run is still hidden, the run after it killed at once.

        That one may have written a ``best.npz`` of its own, but no ``last.npz`` with an update.
        """
        if self.directory is None or not (self.directory / _BEST_BEFORE).exists():
            return False
        with suppress(CheckpointError, OSError):
            _, meta = load_checkpoint(self.directory / LAST, TRAINING_STATE)
            return meta.get("updates") == 0
        return False

    def put_best_back(self) -> None:
        """Let the ``best.npz`` be there again that `start` put out of the way."""
        if self.directory is None or (self.directory / BEST).exists():
            return
        with suppress(FileNotFoundError):
            (self.directory / _BEST_BEFORE).replace(self.directory / BEST)

    @contextmanager
    def withdrawn_if_it_fails(self) -> Iterator[None]:
        """Within it, what ends a run before anything new is kept takes the first ``last.npz`` away.

        What fails there, such as a bound on attention that leaves too little, or a rate that leads
        to no finite loss at the first validation, fails whenever it is resumed; and its folder
        would be refused to the command that was put right. Until then, the best model of a run that
        was there before is kept. A second Ctrl-C that early leaves nothing to resume either.
        """
        try:
            yield
        except BaseException:
            if not self.kept and self.directory is not None:
                # In this order, so that whatever kills it leaves no model beside another's state.
                (self.directory / BEST).unlink(missing_ok=True)  # this run's, if there is one
                (self.directory / LAST).unlink(missing_ok=True)
                self.put_best_back()
            raise

    def save(self, path: Path | None = None) -> None:
        """Write ``last.npz``, or another file: everything that it takes to resume the run."""
        self.saved_at = self.seconds
        if self.directory is None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        arrays = self._arrays()
        if self.best is not None:
            arrays |= with_prefix("best", self.best)
        for age, params in enumerate(reversed(self.recent)):
            arrays |= with_prefix(f"recent.{age}", params)
        meta = {
            "kind": TRAINING_STATE,
            "identity": self.identity,
            **{name: getattr(self, name) for name in _NUMBERS},
            "epoch_state": self.epoch_state,
            "dropout_state": self.dropout_rng.bit_generator.state,
            "schedule": self.schedule.state(),
            "history": asdict(self.history) | {"interrupted": False},
            "loss_sum": float(self.loss_sum),
        }
        save_checkpoint(path or self.directory / LAST, arrays, meta)
        if self.updates:
            self.kept = True
            (self.directory / _BEST_BEFORE).unlink(missing_ok=True)

    def resume(self) -> None:
        """Restore the state that :meth:`save` wrote."""
        if self.directory is None:
            raise ValueError("resume: needs the directory of the run")
        path = self.directory / LAST
        arrays, meta = load_checkpoint(path, TRAINING_STATE)
        identity = meta.get("identity")
        if not isinstance(identity, dict):
            raise CheckpointError(f"{path}: identity is missing or damaged")
        if self.config.can_be_longer and isinstance(identity.get("settings"), dict):
            identity["settings"].pop("updates", None)  # earlier runs have it
        if different := differences(*map(_spelled_out, (identity, self.identity))):
            raise CheckpointError(
                f"{path}: belongs to another run ({different}); resume with the same command, or "
                "start a new run in another folder"
            )
        # Everything is checked before anything is used.
        with _reading_description(path):
            self._restore_description(meta)
        if self.updates > self.config.updates and not self._validated_last():
            raise CheckpointError(
                f"{path}: {self.updates} updates are done: expected to make at least as many in "
                f"all, got {self.config.updates}"
            )
        expected = self._arrays()
        for group in (*(["best"] if self.history.update else []), *self._remembered()):
            expected |= with_prefix(group, self.model.params)
        check_arrays(path, arrays, expected)
        with _reading_description(path):
            self.optimizer.load(without_prefix("optimizer", arrays))
            if self.optimizer.updates != self.updates:
                raise ValueError(
                    f"optimizer: expected {self.updates} updates, got {self.optimizer.updates}"
                )
        for name, x in without_prefix("param", arrays).items():
            self.model.params[name][...] = self.xp.asarray(x)
        best = without_prefix("best", arrays)
        self.best = {name: self.xp.asarray(x) for name, x in best.items()} or None
        recent = [without_prefix(group, arrays) for group in self._remembered()]
        on_device = [{name: self.xp.asarray(x) for name, x in then.items()} for then in recent]
        self.recent = on_device[::-1]
        self.kept = self.updates > 0

    def _remembered(self) -> list[str]:
        """The groups of parameters to be averaged that a checkpoint has by now, newest first."""
        config = self.config
        if config.average_every is not None:
            count = self.updates // config.average_every
        else:
            due = sum(map(self._is_due, self.history.update))
            count = due if config.average > 1 else 0
        return [f"recent.{age}" for age in range(min(count, config.average))]

    def _restore_description(self, meta: dict[str, Any]) -> None:
        """What is not an array; raises one of several errors if it is not as `save` wrote it."""
        history = restored_history(meta["history"])
        for name in (*_NUMBERS, "loss_sum"):
            check_number(name, meta[name], whole=name not in ("seconds", "loss_sum"))
            if meta[name] < 0 and name != "loss_sum":
                raise ValueError(f"{name}: expected a number from 0 up, got {meta[name]}")
        if meta["count"] >= 2**63:
            raise ValueError("count: expected a number below 2**63")
        if history.update and history.update[-1] > meta["updates"]:
            raise ValueError(f"history: expected updates up to {meta['updates']}")
        if history.seconds and history.seconds[-1] > meta["seconds"]:
            raise ValueError(f"history: expected seconds up to {meta['seconds']}")
        since = meta["updates"] - max(history.update, default=0)
        if meta["loss_count"] != since:
            raise ValueError(f"loss_count: expected {since}, the updates since the last validation")
        if meta["stale"] > len(history.update):
            raise ValueError(f"stale: expected at most {len(history.update)}, the validations")
        if meta["schedule"].keys() != self.schedule.state().keys():
            raise ValueError(f"schedule: expected {self.schedule.state()}, got {meta['schedule']}")
        self.schedule.load(meta["schedule"])
        restore_generator(self.order_rng, "epoch_state", meta["epoch_state"])
        self.epoch_state = self.order_rng.bit_generator.state  # until the epoch is drawn again
        restore_generator(self.dropout_rng, "dropout_state", meta["dropout_state"])
        self.history = history
        self.loss_sum = meta["loss_sum"]
        for name in _NUMBERS:
            setattr(self, name, meta[name])
        self.saved_at = self.seconds


def _spelled_out(identity: dict[str, Any]) -> dict[str, Any]:
    """An identity with the settings that it leaves out, as they come back from a file."""
    settings = identity.get("settings")
    if not isinstance(settings, dict):
        return identity
    return identity | {"settings": json.loads(json.dumps(TrainingConfig.spelled_out(settings)))}


@contextmanager
def _reading_description(path: Path) -> Iterator[None]:
    """Whatever is wrong with a description that is read inside is a CheckpointError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"{path}: its description is incomplete or damaged ({type(error).__name__}: {error})"
        ) from error


def _check_rate_factors(config: TrainingConfig, names: Iterable[str]) -> None:
    """Raise a ValueError for a factor of no parameter's rate: a name was misspelt."""
    for part in config.rate_factors or {}:
        if not any(part in name for name in names):
            raise ValueError(
                f"rate_factors: expected part of a parameter's name, got {part!r}; the parameters "
                f"are {', '.join(sorted(names))}"
            )


def _schedule(config: TrainingConfig) -> LinearDecay | HalveOnPlateau | InverseSquareRoot:
    if config.schedule == "linear":
        return LinearDecay(config.rate, config.updates)
    if config.warmup is not None:  # and so only for "inverse_sqrt"
        return InverseSquareRoot(config.rate, config.warmup)
    return HalveOnPlateau(config.rate)
