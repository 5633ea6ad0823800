"""A language model with its vocabulary of characters: trained, saved, loaded, measured, sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from experiments.attention_start import before_update
from experiments.language_model import MemorySegments, RelativeConfig, RelativeLanguageModel
from experiments.tasks import fit
from pyentmax.seq2seq.data import (
    BOS,
    EOS,
    SPECIALS,
    DataError,
    Segments,
    Vocabulary,
    cut,
    text_files,
)
from pyentmax.seq2seq.decoding.sampling import check_choice, draw_tokens
from pyentmax.seq2seq.inflection.saved_model import SavedModel
from pyentmax.seq2seq.models.language_model import LanguageModel, LanguageModelConfig
from pyentmax.seq2seq.models.outputs import choose_keep_sets
from pyentmax.seq2seq.training import History, RunOptions, TrainingConfig, Validation, fingerprint

END = "\n"
"""Where decoders end a continuation, if the text has it: with the line."""
HELD_OUT = 10  # the last tenth of a text is not learned from
VALIDATED = 1 << 14
"""Characters of the held-out text on which a model is validated while it learns: the first ones."""


class Text(NamedTuple):
    """A text to learn from, and one to measure on, such as its last tenth."""

    train: str
    held_out: str


def read_text(*paths: str | Path, held_out: Sequence[str | Path] = ()) -> Text:
    """Text files, in UTF-8, joined: what to learn from, and the last tenth or ``held_out``.

    Between two files there is a line feed at least.

    Raises
    ------
    DataError
        If a text is empty or not UTF-8.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "song.txt")
    ...     _ = path.write_text("la la la la la la la la " * 5)
    ...     [len(part) for part in read_text(path)]
    [108, 12]
    """
    text, other = map(_joined, (paths, held_out))
    if len(text) < HELD_OUT:
        raise DataError(f"{paths[0]}: expected a text, got {len(text)} characters")
    learned = len(text) - len(text) // HELD_OUT
    return Text(text, other) if held_out else Text(text[:learned], text[learned:])


def _joined(paths: Sequence[str | Path]) -> str:
    text = ""
    for path in paths:
        text += "" if text[-1:] in ("", "\n") else "\n"
        text += text_files.read_text(path)
    return text


class Predictions(NamedTuple):
    """What a model finds possible at each of some places of a text.

    Attributes
    ----------
    probabilities : (N, V) array
    labels : (N,) array
        What stands there.
    """

    probabilities: np.ndarray
    labels: np.ndarray


class Writer(SavedModel):
    """A language model, with its vocabulary.

    Parameters
    ----------
    model : LanguageModel
    vocabulary : Vocabulary
        Of single characters.
    context : int
        Characters that the model has learned to read at once.

    Examples
    --------
    >>> shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    >>> writer = Writer.untrained("to be or not to be", np.random.default_rng(0), 8, **shape)
    >>> writer.write("to ", 4, np.random.default_rng(1)).startswith("to ")
    True
    """

    kind = "language model"
    model: LanguageModel

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, context: int) -> None:
        self.model = model
        self.vocabulary = vocabulary
        self.context = context

    @classmethod
    def untrained(cls, text: str, rng: np.random.Generator, context: int, **config: Any) -> Self:
        """A model with random parameters, and a vocabulary of what occurs in the text.

        ``config`` has the fields of `LanguageModelConfig` but for the size, or, with ``positions``
        "relative", those of `RelativeConfig`.
        """
        vocabulary = Vocabulary.build([text])
        network, shape = _network({"size": len(vocabulary), **config})
        model = network.initialize(shape, rng, bos=BOS, eos=_end(vocabulary))
        return cls(model, vocabulary, context)

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text's characters; a DataError names one that the model has never seen."""
        return self.vocabulary.encode(text, what="the text")

    def usual_beginning(self) -> str:
        """A new line, or if the model has never seen one a space, or its first character."""
        characters = self.vocabulary.tokens[len(SPECIALS) :]
        return next(c for c in ("\n", " ", *characters) if c in characters)

    # --- measuring --------------------------------------------------------------------------------
    def predictions(
        self, tokens: np.ndarray, context: int | None = None, counted: int | None = None
    ) -> Iterator[Predictions]:
        """What the model predicts along a text, cut into pieces, each read from its beginning.

        Parameters
        ----------
        tokens : int array
        context : int, optional
            Number of characters read at once; by default that of training.
        counted : int, optional
            Only this number of characters at the end of each piece is predicted; the pieces overlap
            such that no character is predicted twice: those after the first ``context − counted``.
            With the same end of the text and the same ``counted``, other contexts thus predict
            the same characters, as far as they reach.

        Raises
        ------
        DataError
            If the text is shorter than one piece and the next character.
        """
        context = context or self.context
        counted = counted or context
        check_length(tokens, context, "tokens")
        starts = np.arange(len(tokens) - context - 1, -1, -counted)[::-1]
        size = max(1, 8192 // context)
        model = self.model
        for i in range(0, len(starts), size):
            batch = cut(tokens, starts[i : i + size], context)
            scores = model.scores(model.params, np.asarray(batch.tokens_in))
            scores = scores.data[:, -counted:].reshape(-1, model.config.size)
            p, _ = model.output.probabilities(scores)
            yield Predictions(p, batch.tokens_out[:, -counted:].reshape(-1))

    def validate(self, tokens: np.ndarray) -> Validation:
        """Mean loss per character, and the share of characters that are the most probable ones.

        A DataError says if the text is shorter than one piece and the next character.
        """
        check_length(tokens, self.context, "tokens")
        model, loss, right, count = self.model, 0.0, 0, 0
        starts = np.arange(0, len(tokens) - self.context, self.context)
        for i in range(0, len(starts), 32):
            batch = cut(tokens, starts[i : i + 32], self.context)
            scores = model.scores(model.params, batch.tokens_in)
            flat, labels = scores.reshape(-1, model.config.size), batch.tokens_out.reshape(-1)
            loss += float(model.output.loss(flat, labels, reduction="sum").data)
            right += int((flat.data.argmax(axis=-1) == labels).sum())
            count += labels.size
        return Validation(loss / count, right / count)

    # --- writing ----------------------------------------------------------------------------------
    def write(
        self,
        beginning: str,
        length: int,
        rng: np.random.Generator,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        nucleus: float | None = None,
        keep: str | None = None,
    ) -> str:
        """A beginning, and its continuation by ``length`` characters, drawn one by one.

        Where the output mapping gives zeros, nothing outside the support is ever drawn; special
        tokens are not characters, and are not drawn from a dense output either. The last
        ``context`` characters of the beginning are read. When the text gets longer than that, the
        second half of what was read is read again, and the first half is forgotten. ``keep`` names
        a set to draw from, such as ``"min_p=0.05"``.

        Raises
        ------
        DataError
            If the beginning is empty, or has a character that the model has never seen.
        ValueError
            If a number is out of range, or the model gives no probabilities.
        """
        if not beginning:
            raise DataError("beginning: expected at least one character, got none")
        if length < 0:
            raise ValueError(f"length: expected a number from 0 up, got {length:,}")
        check_choice(temperature, top_k, nucleus)
        keep_sets = choose_keep_sets(keep)
        model, tokens = self.model, self.encode(beginning).tolist()
        state, last, n_read = None, np.array([model.bos]), self.context
        for _ in range(length):
            if state is None or state.cache.lengths[0] >= self.context:
                read = np.array([tokens[-n_read:]])
                n_read = max(1, self.context // 2)
                state = model.encode(read, np.ones_like(read, bool))
            step, state = model.step(state, last)
            log_prob = step.log_prob.copy()
            log_prob[:, : len(SPECIALS)] = -np.inf  # a dense output finds them possible
            if not np.isfinite(log_prob.max()):
                raise ValueError(
                    f"the model finds no character possible after {len(tokens)}; a sparse output "
                    "that has hardly been trained may leave special tokens only"
                )
            for keep_set, number in keep_sets:
                log_prob[~keep_set(log_prob, number)] = -np.inf
            last = draw_tokens(log_prob, rng, temperature, top_k, nucleus)
            tokens.append(int(last[0]))
        return "".join(self.vocabulary.decode(tokens))

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """Configuration, vocabulary and context, in a form that JSON can hold."""
        return {
            "config": asdict(self.model.config),
            "vocabulary": self.vocabulary.to_json(),
            "context": self.context,
        }

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these parameters and this description."""
        vocabulary = Vocabulary.from_json(description["vocabulary"])
        network, shape = _network(description["config"])
        model = network(shape, arrays, BOS, _end(vocabulary))
        return cls(model, vocabulary, int(description["context"]))


def _end(vocabulary: Vocabulary) -> int:
    return int(vocabulary.encode([END])[0]) if END in vocabulary.tokens else EOS


def _network(config: dict[str, Any]) -> tuple[Any, LanguageModelConfig]:
    """The class of a model, and its configuration."""
    if config.get("positions") == "relative":
        return RelativeLanguageModel, RelativeConfig(**config)
    plain = {name: x for name, x in config.items() if name not in ("positions", "memory")}
    return LanguageModel, LanguageModelConfig(**plain)


def check_length(tokens: np.ndarray, context: int, what: str) -> None:
    """Raise a DataError unless there is one piece of a text at least to measure on."""
    if len(tokens) <= context:
        raise DataError(
            f"{what}: expected at least {context + 1:,} characters, one piece of {context} and the "
            f"next character, got {len(tokens):,}; shorten the context, or take more text"
        )


def train_writer(
    text: Text,
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    context: int = 256,
    batch_size: int = 4,
    on_validation: Callable[[Writer, Validation], None] | None = None,
    **model: Any,
) -> tuple[Writer, History]:
    """Train a language model; returns it, as it was at the best validation, with its history.

    Parameters
    ----------
    text : Text
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.seq2seq.training.train`, whose errors may come.
    context, batch_size : int
        Characters per piece of the text, and pieces per batch.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and the result.
    **model
        As for `Writer.untrained`.

    Raises
    ------
    DataError
        If either part of the text is too short for the context.
    """
    rng = np.random.default_rng(config.seed)
    writer = Writer.untrained(text.train + text.held_out, rng, context, **model)
    held_out = writer.encode(text.held_out)[: VALIDATED + 1]
    check_length(held_out, context, "held-out text")
    tokens, memory = writer.encode(text.train), getattr(writer.model.config, "memory", 0)
    history = fit(
        writer,
        MemorySegments(tokens, context, batch_size, memory)
        if memory
        else Segments(tokens, context, batch_size),
        config,
        lambda: writer.validate(held_out),
        options,
        data={
            "train": fingerprint(text.train),
            "dev": fingerprint(text.held_out),
            "context": context,
            "batch_size": batch_size,
        },
        on_validation=on_validation,
        before_update=before_update(config, writer.model),
    )
    return writer, history
