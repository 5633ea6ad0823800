"""The training loop: updates, validation, checkpoints, and resuming a run that was cut off.

The loop does not know what is learned: a model computes the loss of a batch, a source makes the
batches, and a function validates (`Trainable` and `BatchSource` in `protocol`).

A run is determined by its configuration, its batches and its seed. The order of the batches and the
dropout masks come from two generators spawned from the seed, schedules depend on the number of
updates or the validation loss, never on the clock, and ``last.npz`` holds the whole state. On the
same machine, with the same BLAS and thread count, a resumed run gives the same numbers to the last
digit as one that was never interrupted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pyentmax.engine.system.blas import limit_blas
from pyentmax.engine.system.config import for_json
from pyentmax.engine.system.files import locked, replacing
from pyentmax.engine.system.memory import keep_freed_memory
from pyentmax.seq2seq.autograd import Tensor
from pyentmax.seq2seq.nn.optim import Adam, clip_gradients
from pyentmax.seq2seq.nn.schedules import halve_on_plateau, inverse_square_root, linear_decay
from pyentmax.seq2seq.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from pyentmax.seq2seq.training.config import (
    BEST,
    LAST,
    SETTINGS,
    RunOptions,
    TrainingConfig,
    check_settings,
)
from pyentmax.seq2seq.training.history import History, Validation
from pyentmax.seq2seq.training.interrupt import defer_interrupt
from pyentmax.seq2seq.training.progress import Progress
from pyentmax.seq2seq.training.protocol import BatchSource, Trainable

TRAINING_STATE = "training state"
DIAGNOSTICS_EVERY = 20  # updates

Batch = TypeVar("Batch")

# The numbers of a run that last.npz holds as they are.
_NUMBERS = ("updates", "done_in_epoch", "loss_sum", "count", "seconds")


def train(
    model: Trainable[Batch],
    batches: BatchSource[Batch],
    config: TrainingConfig,
    validate: Callable[[Any], Validation],
    options: RunOptions | None = None,
    *,
    settings: dict[str, Any] | None = None,
    save_best: Callable[[Path], None] | None = None,
    before_update: Callable[[int, Adam], Trainable[Batch]] | None = None,
) -> History:
    """Train a model in place.

    Parameters
    ----------
    model : Trainable
        Such as an :class:`pyentmax.seq2seq.models.rnn_seq2seq.RNNSeq2Seq`. ``model.params`` is
        updated in place.
    batches : BatchSource
        Such as a :class:`pyentmax.seq2seq.data.BucketedPairs`.
    config : TrainingConfig
    validate : callable
        Given the model, returns a :class:`Validation`.
    options : RunOptions, optional
        Where and how to run; by default nothing is written.
    settings : dict, optional
        What else determines the run (the model's sizes, fingerprints of the data), as JSON can hold
        it. It is written to ``settings.json`` with the configuration; a run is resumed only if
        all of them are equal, except that ``updates`` may grow where the schedule does not depend
        on it (`TrainingConfig.extendable`). If it is not set, the interval of validation follows.
    save_best : callable, optional
        Given a path, writes the model there, with everything needed to use it.
    before_update : callable, optional
        Given the number of updates that are done and the optimiser, returns the model whose loss
        the next update lowers: this one, or another with the same parameters.

    Raises
    ------
    ValueError
        If the directory is not free for a new run, or an epoch has no batch.
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
    with ``interrupted`` set. A second Ctrl-C stops at once; the last checkpoint remains. After
    SIGTERM ``last.npz`` is written, too, and then the process ends as it would have without.
    """
    options = options or RunOptions()
    keep_freed_memory()
    run = _Run(model, batches, config, validate, options, settings or {}, save_best)
    run.before_update = before_update
    folder = options.directory
    busy = f"another process trains in {folder}: wait for it, or give another folder"
    alone = nullcontext() if folder is None else locked(folder / ".lock", busy, wait=False)
    with limit_blas(options.blas_threads, announce=options.progress), alone:
        run.begin()
        progress = Progress(config.updates, run.updates, options.progress)
        with closing(progress), defer_interrupt() as interrupted:
            while not (run.finished() or interrupted()):
                run.update()
                progress.updated(run.figures)
                if run.updates % run.validate_every == 0 or run.updates == config.updates:
                    run.validate()
                    progress.validated(run.updates, run.figures())
                elif run.seconds - run.saved_at >= options.save_every:
                    run.save()
            run.history.interrupted = interrupted()
            if run.history.interrupted:
                run.save()
    if options.keep == "best" and run.best is not None:
        run.set_parameters(run.best)
    return run.history


def read_history(directory: Path) -> History:
    """The curves of the run in a directory, as far as its ``last.npz`` goes."""
    return History(**load_checkpoint(directory / LAST, TRAINING_STATE)[1]["history"])


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
        self.model, self.batches, self.config = model, batches, config
        self.validation, self.save_best = validation, save_best
        self.before_update: Callable[[int, Adam], Trainable[Any]] | None = None
        self.options, self.directory = options, options.directory
        if options.demonstration is not None:
            settings = {"demonstration": options.demonstration, **settings}
        settings = {"training": asdict(config), **settings}
        # As from the file. JSON has no infinite number, as of `clip`: it becomes a text.
        text = json.dumps(settings, default=for_json)
        self.settings = json.loads(text, parse_constant=str)
        seeds = np.random.SeedSequence(config.seed).spawn(2)
        self.order_rng, self.dropout_rng = map(np.random.default_rng, seeds)
        self.epoch_state = self.order_rng.bit_generator.state  # before the epoch was drawn
        self.stream = self._batches()
        self.optimizer = Adam(model.params, config.betas)
        self.validate_every = config.validate_every or math.ceil(config.updates / 10)

        self.history = History()
        self.updates = self.done_in_epoch = self.count = 0
        self.loss_sum: Any = 0.0  # since the last validation
        self.seconds = self.saved_at = 0.0
        self.best: dict[str, Any] | None = None
        self.snapshots: list[dict[str, Any]] = []  # to be averaged, oldest first

    def finished(self) -> bool:
        """Whether all updates are done, or patience is exhausted."""
        patience = self.config.patience
        return self.updates >= self.config.updates or (
            patience is not None and self.history.since_best >= patience
        )

    def figures(self) -> str:
        """Speed, loss and accuracy, for the user."""
        history = self.history
        speed = f"{self.count / self.seconds:.0f}" if self.seconds else "?"
        validated = self.updates in history.update[-1:]
        loss = history.loss[-1] if validated else self._mean_loss()
        accuracy = [f", dev {100 * a:.1f}%" for a in history.dev_accuracy[-1:]]
        rate = f", rate {self._rate():.2g}"
        return f"{speed} {self.batches.unit}/s, loss {loss:.4f}{rate}{''.join(accuracy)}"

    # --- updates ----------------------------------------------------------------------------------
    def update(self) -> None:
        """One step of the optimiser."""
        started = self.options.clock()
        batches = list(islice(self.stream, self.config.accumulate))
        counts = [int(self.batches.count(batch)) for batch in batches]
        if self.updates % DIAGNOSTICS_EVERY == 0:
            figures: dict[str, Any] = getattr(self.model, "diagnostics", dict)()
            for name, value in ({"update": self.updates} | figures if figures else {}).items():
                self.history.diagnostics.setdefault(name, []).append(value)
        model = self.model
        if self.before_update is not None:
            model = self.before_update(self.updates, self.optimizer)
        params = {name: Tensor(x, requires_grad=True) for name, x in self.model.params.items()}
        mean: Any = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # reported by `_check_state`
            for batch, count in zip(batches, counts, strict=True):
                loss = model.loss(params, batch, self.dropout_rng)
                if len(batches) > 1:
                    loss = loss * (count / max(sum(counts), 1))
                # Gradients add up in the parameters; the batch's memory is freed before the next.
                loss.backward()
                mean = mean + loss.data.astype(np.float64)
            gradients = {name: x.grad for name, x in params.items() if x.grad is not None}
            clip_gradients(gradients, self.config.clip)
            self.optimizer.step(gradients, self._rate())
        self.updates += 1
        self.loss_sum = self.loss_sum + mean
        self.count += sum(counts)
        if self.config.average_every and self.updates % self.config.average_every == 0:
            self.snapshots = [*self.snapshots, self._copy()][-self.config.average :]
        self.seconds += self.options.clock() - started

    def _rate(self) -> float:
        config = self.config
        if config.schedule == "halve":
            return halve_on_plateau(config.rate, self.history.dev_loss)
        if config.warmup is not None:  # and so only for "inverse_sqrt"
            return inverse_square_root(config.rate, config.warmup, self.updates)
        return linear_decay(config.rate, config.updates, self.updates)

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
        history, copies = self.history, self.snapshots
        current = self._copy() if copies else {}
        self.set_parameters({k: sum(x[k] for x in copies) / len(copies) for k in current})
        with np.errstate(over="ignore", invalid="ignore"):
            result = Validation(*map(float, self.validation(self.model)))
        self._check_finite("validation loss", result.loss)
        self._check_finite("validation accuracy", result.accuracy)
        if result.accuracy > history.best_accuracy:
            self.best = self._copy()
            if self.directory is not None and self.save_best is not None:
                self.save_best(self.directory / BEST)
        self.set_parameters(current)
        history.loss.append(self._mean_loss())
        history.update.append(self.updates)
        history.dev_loss.append(result.loss)
        history.dev_accuracy.append(result.accuracy)
        history.seconds.append(self.seconds)
        history.count.append(self.count)
        self.loss_sum = 0.0
        self.save()

    def set_parameters(self, params: dict[str, Any]) -> None:
        """Put these into the model."""
        for name, x in params.items():
            self.model.params[name][...] = x

    def _copy(self) -> dict[str, Any]:
        return {name: x.copy() for name, x in self.model.params.items()}

    def _mean_loss(self) -> float:
        """Mean training loss since the last validation."""
        return float(self.loss_sum) / (self.updates - sum(self.history.update[-1:]))

    def _check_state(self) -> None:
        """Raise a FloatingPointError unless losses and parameters are finite."""
        started = self.options.clock()
        self._check_finite("training loss", float(self.loss_sum))
        for name, x in self.model.params.items():
            self._check_finite(f"largest entry of {name}", float(np.abs(x).max()))
        self.seconds += self.options.clock() - started

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the {what} is {value} at update {self.updates}: a smaller rate than "
                f"{self.config.rate} or stronger clipping than {self.config.clip} may help"
            )

    # --- files ------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Resume the run in the directory, or begin a new one there; write the settings."""
        if self.directory is None:
            return
        self.options.check_directory()
        if self.options.resume:
            self._load(self.directory)
        else:
            for name in (LAST, BEST):  # of the earlier run of a demonstration
                (self.directory / name).unlink(missing_ok=True)
        with replacing(self.directory / SETTINGS) as file:
            file.write(json.dumps(self.settings, indent=1, ensure_ascii=False).encode())

    def save(self) -> None:
        """Write ``last.npz``: everything needed to resume the run."""
        self._check_state()
        self.saved_at = self.seconds
        if self.directory is None:
            return
        parts = {"param": self.model.params, "best": self.best or {}}
        parts |= {"optimizer": self.optimizer.state()}
        parts |= {f"snapshot.{k}": params for k, params in enumerate(self.snapshots)}
        arrays = {f"{part}.{name}": x for part, group in parts.items() for name, x in group.items()}
        meta = {
            "kind": TRAINING_STATE,
            **{name: getattr(self, name) for name in _NUMBERS},
            "loss_sum": float(self.loss_sum),
            "epoch_state": self.epoch_state,
            "dropout_state": self.dropout_rng.bit_generator.state,
            "snapshots": len(self.snapshots),
            "history": asdict(self.history) | {"interrupted": False},
        }
        save_checkpoint(self.directory / LAST, arrays, meta)

    def _load(self, directory: Path) -> None:
        """Restore what :meth:`save` wrote; a run killed before its first checkpoint begins anew."""
        extends = (self.config.validate_every or 1) if self.config.extendable else None
        check_settings(directory, self.settings, extends=extends)
        path = directory / LAST
        if not path.exists():
            return
        arrays, meta = load_checkpoint(path, TRAINING_STATE)

        def group(part: str) -> dict[str, Any]:
            return {name: np.asarray(arrays[f"{part}.{name}"]) for name in self.model.params}

        try:
            self.set_parameters(group("param"))
            for name in _NUMBERS:
                setattr(self, name, meta[name])
            self.saved_at = self.seconds
            self.history = History(**meta["history"])
            self.epoch_state = self.order_rng.bit_generator.state = meta["epoch_state"]
            self.dropout_rng.bit_generator.state = meta["dropout_state"]
            self.optimizer.load({k.removeprefix("optimizer."): x for k, x in arrays.items()})
            self.best = group("best") if self.history.update else None
            self.snapshots = [group(f"snapshot.{k}") for k in range(meta["snapshots"])]
            if self.best and self.save_best is not None and not (directory / BEST).exists():
                self.set_parameters(self.best)  # it was moved
                self.save_best(directory / BEST)
                self.set_parameters(group("param"))
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"{path}: not a complete state of this model ({type(error).__name__}: {error})"
            ) from error
