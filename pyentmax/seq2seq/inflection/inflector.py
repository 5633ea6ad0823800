"""A model of word forms with its vocabularies: trained, saved, loaded, searched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from pyentmax.seq2seq.data import BOS, EOS, SPECIALS, BucketedPairs, DataError, Pair, Vocabulary
from pyentmax.seq2seq.decoding import ForcedDecoding, SearchResult, forced_decoding, greedy_search
from pyentmax.seq2seq.inflection.examples import (
    LANGUAGE_MARK,
    Example,
    source_tokens,
    split_tags,
    tag_order,
)
from pyentmax.seq2seq.inflection.saved_model import SequenceModel, batches_of, saved_config
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.training import (
    History,
    RunOptions,
    TrainingConfig,
    Validation,
    fingerprint,
    train,
)


class Inflector(SequenceModel):
    """A model of word forms, one network or an ensemble, with its vocabularies.

    Parameters
    ----------
    model : RNNSeq2Seq or Ensemble
    source, target : Vocabulary
        Of tags and characters, and of the characters of forms.
    tags : sequence of str, optional
        The order in which the model reads the tags of a bundle, which is a set. Without it, as for
        models of early versions, they have to come in the order of the training files.
    bundles : collection of str
        Those of training, in that order, joined by semicolons.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.seq2seq.inflection import Example
    >>> verbs = [Example("play", "played", ("V", "PST")), Example("walk", "walked", ("V", "PST"))]
    >>> inflector = Inflector.untrained(verbs, np.random.default_rng(0), hidden=8)
    >>> len(inflector.source), len(inflector.target)
    (12, 12)
    """

    kind = "inflection model"

    def __init__(
        self,
        model: Any,
        source: Vocabulary,
        target: Vocabulary,
        tags: Sequence[str] | None = None,
        bundles: Iterable[str] = (),
    ) -> None:
        super().__init__(model, source, target)
        self.tags = None if tags is None else list(tags)
        self.bundles = set(bundles)

    @classmethod
    def untrained(
        cls, examples: Sequence[Example], rng: np.random.Generator, **config: Any
    ) -> Self:
        """A model with random parameters, and vocabularies of what occurs in the examples.

        Parameters
        ----------
        rng : numpy.random.Generator
            Draws the parameters.
        **config
            Fields of :class:`pyentmax.seq2seq.models.rnn_seq2seq.RNNSeq2SeqConfig` but for the two
            sizes.
        """
        source = Vocabulary.build(source_tokens(example) for example in examples)
        target = Vocabulary.build(example.form for example in examples)
        shape = RNNSeq2SeqConfig(source_size=len(source), target_size=len(target), **config)
        model = RNNSeq2Seq.initialize(shape, rng, bos=BOS, eos=EOS)
        inflector = cls(model, source, target, tag_order(examples))
        inflector.bundles = {";".join(inflector.in_order(example.tags)) for example in examples}
        return inflector

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these parameters and this description."""
        config = RNNSeq2SeqConfig(**saved_config(description))
        source, target = (Vocabulary.from_json(description[name]) for name in ("source", "target"))
        model = RNNSeq2Seq(config, arrays, BOS, EOS)
        order, bundles = description.get("tags"), description.get("bundles", ())
        return cls(model, source, target, order, bundles)

    def description(self) -> dict[str, Any]:
        """Configuration, vocabularies, and the tags with their bundles."""
        return super().description() | {"tags": self.tags, "bundles": sorted(self.bundles)}

    def shared(self) -> dict[str, Any]:
        """The parts that must be equal in models whose probabilities are averaged."""
        return super().shared() | {"order of tags": self.tags}

    def in_order(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Tags in the order in which the model reads them; unknown ones last."""
        if self.tags is None:
            return tuple(tags)
        place = {tag: i for i, tag in enumerate(self.tags)}
        return tuple(sorted(tags, key=lambda tag: place.get(tag, len(place))))

    def source_tokens(self, example: Example) -> list[str]:
        """The model's input: `source_tokens` with the tags in its order."""
        return source_tokens(example._replace(tags=self.in_order(example.tags)))

    def note(self, tags: Iterable[str]) -> str:
        """A remark on an answer for these tags, or an empty text."""
        if self.tags is None:
            return "the model does not know in which order it reads tags: give those of its files"
        bundle = ";".join(self.in_order(tags))
        return "" if bundle in self.bundles else f"no training example has the tags {bundle}"

    def pairs(self, examples: Sequence[Example]) -> list[Pair]:
        """Examples as token ids; a token that the vocabularies lack becomes ``<unk>``."""
        return [
            (
                self.source.encode(self.source_tokens(example), unknown="<unk>"),
                self.target.encode(example.form, unknown="<unk>"),
            )
            for example in examples
        ]

    def form(self, tokens: Iterable[int]) -> str:
        """The string that some target tokens spell."""
        return "".join(self.target.decode(tokens))

    # --- decoding ---------------------------------------------------------------------------------
    def inflect(
        self,
        lemma: str,
        tags: str | Sequence[str],
        language: str | None = None,
        **options: Any,
    ) -> SearchResult:
        """Every form that the model finds possible, with the certificate of the search.

        Parameters
        ----------
        tags : str or sequence of str
            Such as ``"V;V.PTCP;PST"``.
        language : str, optional
            Needed for a model of several languages.
        **options
            Those of `SequenceModel.decode`: ``search``, ``beam``, ``n_best``, ``budget``,
            ``max_length``, ``keep_attention``.

        Raises
        ------
        DataError
            If the model has never seen a character of the lemma, a tag or the language.
        ValueError
            If there is no such search, or a number is below 1.
        """
        return self.decode(self._source(lemma, tags, language)[None], **options)[0]

    def force(
        self, lemma: str, tags: str | Sequence[str], form: str, language: str | None = None
    ) -> ForcedDecoding:
        """Tokens that the model finds possible at each step of a given form, possible or not.

        Errors as for `inflect`, and a DataError for a character that no form of training has.
        """
        ids = self._source(lemma, tags, language)
        return self.force_tokens(ids, self.target.encode(form, what=f"form {form!r}"))

    def force_all(
        self, examples: Sequence[Example], batch_size: int = 64, *, progress: bool = False
    ) -> Iterator[tuple[int, ForcedDecoding]]:
        """The index of each example, and what the model finds possible at each step of its form.

        Yields batch by batch, so that one need not be kept when the next is computed. Parameters
        as for `predict`.
        """
        pairs = self.pairs(examples)
        for batch in batches_of(pairs, batch_size, "word", progress):
            targets = [pairs[i][1] for i in batch.index]
            decodings = forced_decoding(self.model, batch.source, batch.source_mask, targets)
            yield from zip(map(int, batch.index), decodings, strict=True)

    def predict(
        self,
        examples: Sequence[Example],
        batch_size: int = 64,
        *,
        progress: bool = False,
        **options: Any,
    ) -> list[SearchResult]:
        """The result of a search for each example, in their order.

        Parameters
        ----------
        batch_size : int, default 64
            Number of examples that are decoded together.
        progress : bool, default False
            Whether to show a bar.
        **options
            As for `SequenceModel.decode`; but an exact search stops at the best hypothesis if
            ``n_best`` is not given.
        """
        if options.get("search") == "exact":
            options = {"n_best": 1, **options}
        results: dict[int, SearchResult] = {}
        for batch in batches_of(self.pairs(examples), batch_size, "word", progress):
            searches = self.decode(batch.source, batch.source_mask, keep_attention=False, **options)
            results |= zip(map(int, batch.index), searches, strict=True)
        return [results[i] for i in range(len(examples))]

    def validate(self, examples: Sequence[Example], batch_size: int = 128) -> Validation:
        """Mean loss per token, and share of forms that greedy search gets entirely right."""
        loss: Any = 0.0
        tokens = right = 0.0
        for batch in batches_of(self.pairs(examples), batch_size, "word", False):
            count = float(batch.target_mask.sum())
            loss = loss + count * self.model.loss(self.model.params, batch).data.astype(np.float64)
            if not np.isfinite(float(loss)):  # nothing to decode
                return Validation(float(loss), 0.0)
            tokens += count
            greedy = greedy_search(self.model, batch.source, batch.source_mask)
            for i, output in zip(batch.index, greedy, strict=True):
                # Compared as strings: a form with an unknown character is never right.
                right += self.form(output) == examples[i].form
        return Validation(float(loss) / tokens, right / len(examples))

    def known_tags(self) -> list[str]:
        """The tags of the source vocabulary, sorted."""
        marks = [t[1:-1] for t in self.source.tokens[len(SPECIALS) :] if len(t) > 1]
        return [mark for mark in marks if not mark.startswith(LANGUAGE_MARK)]

    def check(self, lemma: str, words: Sequence[str], language: str | None) -> None:
        """Raise a DataError for an empty lemma, or a tag or a language that is not known."""
        if not lemma:
            raise DataError("lemma: expected at least one character, got an empty string")
        mark, known = f"<{LANGUAGE_MARK}", self.known_tags()
        languages = [t[len(mark) : -1] for t in self.source.tokens if t.startswith(mark)]
        for tag in words:
            if tag not in known:
                raise DataError(
                    f"unknown tag {tag!r} in {';'.join(words)!r}: expected tags separated by "
                    f"semicolons, from {' '.join(known)}"
                )
        if language is not None and language not in languages:
            expected = f"one of {' '.join(languages)}" if languages else "none, trained without"
            raise DataError(f"unknown language {language!r}: the model expects {expected}")
        if language is None and languages:
            raise DataError(f"language: the model knows several, name one of {' '.join(languages)}")

    def _source(self, lemma: str, tags: str | Sequence[str], language: str | None) -> np.ndarray:
        """The ids of a source; a DataError names what the model does not know."""
        words = split_tags(tags) if isinstance(tags, str) else tuple(tags)
        self.check(lemma, words, language)
        tokens = self.source_tokens(Example(lemma, "", words, language))
        return self.source.encode(tokens, what=f"lemma {lemma!r}")


def train_inflector(
    examples: Sequence[Example],
    dev: Sequence[Example],
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    batch_size: int = 32,
    **model: Any,
) -> tuple[Inflector, History]:
    """Train a model of inflection; returns it with its history.

    Parameters
    ----------
    examples, dev : sequences of Example
        To learn from, and to validate on.
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.seq2seq.training.train`, whose errors may come.
    batch_size : int, default 32
        Examples per update.
    **model
        Fields of :class:`pyentmax.seq2seq.models.rnn_seq2seq.RNNSeq2SeqConfig`.
    """
    inflector = Inflector.untrained(examples, np.random.default_rng(config.seed), **model)
    data = {"train": fingerprint(examples), "dev": fingerprint(dev), "batch_size": batch_size}
    history = train(
        inflector.model,
        BucketedPairs(inflector.pairs(examples), batch_size),
        config,
        lambda _: inflector.validate(dev),
        options,
        settings={"model": asdict(inflector.model.config), "data": data},
        save_best=inflector.save,
    )
    return inflector, history
