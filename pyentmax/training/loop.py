"""The training loop: updates, validation, checkpoints, and resuming a run that was cut off.

The loop does not know what is learned: a model computes the loss of a batch, a source makes the
batches, and a function validates (`Trainable` and `BatchSource` in `protocol`).

A run is determined by its configuration, its batches and its seed. The order of the batches and the
dropout masks come from two generators spawned from the seed, schedules depend on the number of
updates or the validation loss, never on the clock, and ``last.npz`` holds the whole state. On the
same machine, with the same BLAS and thread count, a resumed run gives the same numbers to the last
digit as one that was never interrupted. (A GPU adds the gradients of an embedding's rows in no
fixed order, which shows in the last digits.)

It runs where the model's parameters are. On a GPU an update copies its batch there and nothing
back: the loss is summed on the device, and read only for a validation, a checkpoint or the progress
bar; the model's diagnostics, every 20 updates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
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
from pyentmax.system.files import locked, replacing
from pyentmax.system.memory import keep_freed_memory
from pyentmax.training.checkpoint import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
    with_prefix,
    without_prefix,
)
from pyentmax.training.config import BEST, LAST, SETTINGS, RunOptions, TrainingConfig, read_settings
from pyentmax.training.history import History, Validation
from pyentmax.training.interrupt import defer_interrupt
from pyentmax.training.progress import Progress
from pyentmax.training.protocol import BatchSource, Trainable

TRAINING_STATE = "training state"
DIAGNOSTICS_EVERY = 20  # updates

Batch = TypeVar("Batch")

# The numbers of a run that last.npz holds as they are.
_NUMBERS = ("updates", "stale", "done_in_epoch", "loss_sum", "loss_count", "count", "seconds")


def train(
    model: Trainable[Batch],
    batches: BatchSource[Batch],
    config: TrainingConfig,
    validate: Callable[[Any], Validation],
    options: RunOptions | None = None,
    *,
    settings: dict[str, Any] | None = None,
    save_best: Callable[[Path], None] | None = None,
) -> History:
    """Train a model in place.

    Parameters
    ----------
    model : Trainable
        Such as an :class:`pyentmax.models.rnn_seq2seq.RNNSeq2Seq`. ``model.params`` is updated in
        place, on the host or on the GPU.
    batches : BatchSource
        Such as a :class:`pyentmax.data.BucketedPairs`.
    config : TrainingConfig
    validate : callable
        Given the model, returns a :class:`Validation`.
    options : RunOptions, optional
        Where and how to run; by default nothing is written.
    settings : dict, optional
        What else determines the run (the model's sizes, fingerprints of the data), as JSON can hold
        it. It is written to ``settings.json`` with the configuration; a run is resumed only if
        all of them are equal, except that ``updates`` may grow where the first updates do not
        depend on it (`TrainingConfig.extendable`).
    save_best : callable, optional
        Given a path, writes the model there, with everything needed to use it.

    Raises
    ------
    ValueError
        If the directory is not free for a new run, an epoch has no batch, or a rate factor matches
        no parameter.
    FileNotFoundError, CheckpointError
        If there is no run to resume, it is damaged, or its settings are others.
    BlockingIOError
        If another process or thread trains in the same directory. (Where files cannot be locked, as
        on Windows, this is not noticed.)
    FloatingPointError
        If a loss or a parameter is not finite any more. The last checkpoint remains.
    OSError
        If the directory cannot be written, noticed before the first update.

    Notes
    -----
    On Ctrl-C the current update is finished, ``last.npz`` is written, and the history is returned
    with ``interrupted`` set. A second Ctrl-C stops at once; the last checkpoint remains.
    """
    options = options or RunOptions()
    options.check_directory()
    keep_freed_memory()
    run = _Run(model, batches, config, validate, options, settings or {}, save_best)
    with limit_blas(options.blas_threads, announce=options.progress), run.alone():
        if options.resume:
            run.load()
        progress = Progress(config.updates, run.updates, options.progress)
        with closing(progress), defer_interrupt() as interrupted:
            run.begin()

            def stopped() -> bool:
                pause = options.pause_after is not None and run.updates >= options.pause_after
                return interrupted() or (pause and not run.finished())

            def validate_now() -> None:
                run.validate()
                progress.validated(run.updates, run.figures())

            while not run.finished() and not stopped():
                run.update()
                progress.updated(run.figures)
                if run.updates % run.validate_every == 0:
                    validate_now()
                elif run.seconds - run.saved_at >= options.save_every:
                    run.save()
            if run.finished() and run.history.update[-1:] != [run.updates]:
                validate_now()
            run.history.interrupted = stopped()
            if run.history.interrupted:
                run.save()
    if options.keep == "best" and run.best is not None:
        run.set_parameters(run.best)
    return run.history


def read_history(directory: str | Path) -> History:
    """The curves of the run in a directory, as far as its ``last.npz`` goes.

    Raises
    ------
    OSError, CheckpointError
        If there is no such file, or it is damaged.
    """
    path = Path(directory) / LAST
    _, meta = load_checkpoint(path, TRAINING_STATE)
    try:
        return History(**meta["history"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: expected the history of a run ({error})") from error


class _Run:
    """The state of a run: what ``last.npz`` holds."""

    def __init__(
        self,
        model: Trainable[Any],
        batches: BatchSource[Any],
        config: TrainingConfig,
        validation: Callable[[Any], Validation],
        options: RunOptions,
        settings: dict[str, Any],
        save_best: Callable[[Path], None] | None,
    ) -> None:
        self.model, self.batches, self.config, self.options = model, batches, config, options
        self.validation, self.save_best = validation, save_best
        _check_rate_factors(config, model)
        self.directory = None if options.directory is None else Path(options.directory)
        demonstration = {"demonstration": options.demonstration} if options.demonstration else {}
        # As it comes back from the file, so that the two can be compared.
        self.settings = json.loads(
            json.dumps({**demonstration, "training": asdict(config), **settings}, default=for_json)
        )
        self.xp = array_module(next(iter(model.params.values())))
        order_seed, dropout_seed = np.random.SeedSequence(config.seed).spawn(2)
        self.order_rng = np.random.default_rng(order_seed)
        self.dropout_rng = np.random.default_rng(dropout_seed)
        self.optimizer = Adam(model.params, config.betas)
        self.schedule = _schedule(config)
        self.validate_every = config.validate_every or math.ceil(config.updates / 10)
        self.history = History()
        self.updates = 0
        self.stale = 0  # validations since the best one
        # The place in the data: the generator's state before the epoch was drawn, and the number of
        # batches done since.
        self.epoch_state = self.order_rng.bit_generator.state
        self.done_in_epoch = 0
        self.stream = self._batches()
        # Over the updates since the last validation; on a GPU, an array that stays there.
        self.loss_sum: Any = 0.0
        self.loss_count = 0
        self.count = 0
        self.seconds = 0.0
        self.saved_at = 0.0
        self.best: dict[str, Any] | None = None
        self.snapshots: list[dict[str, Any]] = []  # to be averaged, oldest first

    def finished(self) -> bool:
        """Whether all updates are done, or patience is exhausted."""
        patience = self.config.patience
        return self.updates >= self.config.updates or (
            patience is not None and self.stale >= patience
        )

    def figures(self) -> str:
        """Speed, loss and accuracy, for the user."""
        speed = f"{self.count / self.seconds:.0f}" if self.seconds else "?"
        loss = self._mean_loss() if self.loss_count else self.history.loss[-1]
        accuracy = [f", dev {100 * a:.1f}%" for a in self.history.dev_accuracy[-1:]]
        return f"{speed} {self.batches.unit}/s, loss {loss:.4f}{''.join(accuracy)}"

    # --- updates ----------------------------------------------------------------------------------
    def update(self) -> None:
        """One step of the optimiser."""
        started = self.options.clock()
        batches = list(islice(self.stream, self.config.accumulate))
        counts = [int(self.batches.count(batch)) for batch in batches]
        if self.updates % DIAGNOSTICS_EVERY == 0 and hasattr(self.model, "diagnostics"):
            if found := self.model.diagnostics():
                for name, value in {"update": self.updates, **found}.items():
                    self.history.diagnostics.setdefault(name, []).append(value)
        model = self.model
        if hasattr(model, "at_update"):
            model = model.at_update(self.updates)
        params = {name: Tensor(x, requires_grad=True) for name, x in self.model.params.items()}
        mean: Any = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # reported by an error below
            for batch, count in zip(batches, counts, strict=True):
                loss = model.loss(params, batch, self.dropout_rng)
                if len(batches) > 1:
                    loss = loss * (count / max(sum(counts), 1))
                if self.xp is np:
                    self._check_finite("training loss", loss.item())
                # Gradients add up in the parameters; the batch's memory is freed before the next.
                loss.backward()
                mean = mean + loss.data.astype(np.float64)
            gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
            clip_gradients(gradients, self.config.clip)
            rate = self.schedule.rate(self.updates)
            self.optimizer.step(gradients, rate, self.config.rate_factors)
        self.updates += 1
        self.loss_sum = self.loss_sum + mean
        self.loss_count += 1
        self.count += sum(counts)
        if self.config.average_every and self.updates % self.config.average_every == 0:
            self.snapshots = [*self.snapshots, self._copy()][-self.config.average :]
        self.seconds += self.options.clock() - started

    def _batches(self) -> Iterator[Any]:
        """Batches, epoch after epoch, from the place in the data on."""
        while True:
            self.epoch_state = self.order_rng.bit_generator.state
            for batch in islice(self.batches.epoch(self.order_rng), self.done_in_epoch, None):
                # Counted before the batch is used: a checkpoint after it must not repeat it.
                self.done_in_epoch += 1
                yield batch
            if not self.done_in_epoch:
                raise ValueError("batches: expected at least one in each epoch, got none")
            self.done_in_epoch = 0

    # --- validation -------------------------------------------------------------------------------
    def validate(self) -> None:
        """Validate, keep the parameters if they are the best, and save."""
        self._check_state()
        history = self.history
        with np.errstate(over="ignore", invalid="ignore"), self._averaged():
            found = Validation(*map(float, self.validation(self.model)))
            self._check_finite("validation loss", found.loss)
            self._check_finite("validation accuracy", found.accuracy)
            self.stale += 1
            if found.accuracy > history.best_accuracy:
                self.stale, self.best = 0, self._copy()
                if self.directory is not None and self.save_best is not None:
                    self.save_best(self.directory / BEST)
        self.schedule.on_validation(found.loss)
        history.update.append(self.updates)
        history.loss.append(self._mean_loss())
        history.dev_loss.append(found.loss)
        history.dev_accuracy.append(found.accuracy)
        history.seconds.append(self.seconds)
        history.count.append(self.count)
        self.loss_sum, self.loss_count = 0.0, 0
        self._write()

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Within it, the model has the mean of the snapshots of its parameters."""
        if not self.snapshots:
            yield
            return
        now, n = self._copy(), len(self.snapshots)
        self.set_parameters({k: sum(x[k] for x in self.snapshots) / n for k in now})
        try:
            yield
        finally:
            self.set_parameters(now)

    def set_parameters(self, params: dict[str, Any]) -> None:
        """Put these into the model."""
        for name, x in params.items():
            self.model.params[name][...] = x

    def _copy(self) -> dict[str, Any]:
        return {name: x.copy() for name, x in self.model.params.items()}

    def _mean_loss(self) -> float:
        """Mean training loss since the last validation; waits for a GPU."""
        return float(self.loss_sum) / self.loss_count

    def _check_state(self) -> None:
        """Raise a FloatingPointError unless losses and parameters are finite; waits for a GPU."""
        started = self.options.clock()
        self._check_finite("training loss", float(self.loss_sum))
        for name, x in self.model.params.items():
            if not self.xp.isfinite(x).all():
                self._check_finite(f"largest entry of {name}", math.inf)
        self.seconds += self.options.clock() - started

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the {what} is {value} at update {self.updates}: a smaller rate than "
                f"{self.config.rate} or stronger clipping than {self.config.clip} may help"
            )

    # --- files ------------------------------------------------------------------------------------
    def alone(self) -> Any:
        """Within it, no other run can be in the directory: each would overwrite the other."""
        if self.directory is None:
            return nullcontext()
        what = f"another process trains in {self.directory}: wait for it, or give another folder"
        return locked(self.directory / ".lock", what, wait=False)

    def begin(self) -> None:
        """Write the settings; the earlier run of a demonstration goes."""
        if self.directory is None:
            return
        if not self.options.resume:
            for name in (LAST, BEST):
                (self.directory / name).unlink(missing_ok=True)
        with replacing(self.directory / SETTINGS) as file:
            file.write(json.dumps(self.settings, indent=1, ensure_ascii=False).encode())

    def save(self) -> None:
        """Write ``last.npz``: everything needed to resume the run."""
        self._check_state()
        self._write()

    def _write(self) -> None:
        self.saved_at = self.seconds
        if self.directory is None:
            return
        arrays = with_prefix("param", self.model.params)
        arrays |= with_prefix("optimizer", self.optimizer.state())
        arrays |= with_prefix("best", self.best or {})
        for k, params in enumerate(self.snapshots):
            arrays |= with_prefix(f"snapshot.{k}", params)
        meta = {
            "kind": TRAINING_STATE,
            **{name: getattr(self, name) for name in _NUMBERS},
            "loss_sum": float(self.loss_sum),
            "epoch_state": self.epoch_state,
            "dropout_state": self.dropout_rng.bit_generator.state,
            "schedule": self.schedule.state(),
            "snapshots": len(self.snapshots),
            "history": asdict(self.history) | {"interrupted": False},
        }
        save_checkpoint(self.directory / LAST, arrays, meta)

    def load(self) -> None:
        """Restore what :meth:`save` wrote."""
        assert self.directory is not None
        path = self.directory / LAST
        self._check_settings()
        arrays, meta = load_checkpoint(path, TRAINING_STATE)
        try:
            self.set_parameters(self._parameters("param", arrays))
            for name in _NUMBERS:
                setattr(self, name, meta[name])
            self.saved_at = self.seconds
            self.history = History(**meta["history"])
            self.epoch_state = self.order_rng.bit_generator.state = meta["epoch_state"]
            self.dropout_rng.bit_generator.state = meta["dropout_state"]
            self.schedule.load(meta["schedule"])
            self.optimizer.load(without_prefix("optimizer", arrays))
            self.best = self._parameters("best", arrays) if self.history.update else None
            self.snapshots = [
                self._parameters(f"snapshot.{k}", arrays) for k in range(meta["snapshots"])
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: not a complete state of this model ({type(error).__name__}: {error})"
            ) from error

    def _parameters(self, prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
        """The arrays with a prefix, on the model's device, if they are those of this model."""
        found = without_prefix(prefix, arrays)
        for name, x in self.model.params.items():
            y = found[name]
            if (y.dtype, y.shape) != (x.dtype, x.shape):
                raise ValueError(
                    f"{prefix}.{name}: expected {x.dtype} of shape {x.shape}, got {y.dtype} of "
                    f"shape {y.shape}"
                )
        return {name: self.xp.asarray(found[name]) for name in self.model.params}

    def _check_settings(self) -> None:
        """Raise a CheckpointError unless the run was started with these settings."""
        assert self.directory is not None
        then, now = (dict(_flat(s)) for s in (read_settings(self.directory), self.settings))
        updates = "training.updates"
        length, longer = then.get(updates), now[updates]
        # A last validation between two others would have changed schedule and patience.
        if self.config.extendable and type(length) is int and length % self.validate_every == 0:
            then[updates] = max(length, longer)
        if different := [
            f"{name} was {then.get(name)!r}, is {now.get(name)!r}"
            for name in now | then
            if then.get(name) != now.get(name)
        ]:
            raise CheckpointError(
                f"{self.directory}: belongs to another run ({'; '.join(different[:3])}); resume "
                "with the same settings, or start a new run in another folder"
            )


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of nested dicts under dotted names."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _check_rate_factors(config: TrainingConfig, model: Trainable[Any]) -> None:
    """Raise a ValueError for a factor that matches no parameter: a name was misspelt."""
    for part in config.rate_factors or {}:
        if not any(part in name for name in model.params):
            raise ValueError(
                f"rate_factors: expected part of a parameter's name, got {part!r}; the parameters "
                f"are {', '.join(sorted(model.params))}"
            )


def _schedule(config: TrainingConfig) -> LinearDecay | HalveOnPlateau | InverseSquareRoot:
    if config.schedule == "linear":
        return LinearDecay(config.rate, config.updates)
    if config.warmup is not None:  # and so only for "inverse_sqrt"
        return InverseSquareRoot(config.rate, config.warmup)
    return HalveOnPlateau(config.rate)
