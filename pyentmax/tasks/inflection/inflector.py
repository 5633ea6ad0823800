"""A model of word forms with its vocabularies: what it finds possible, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from pyentmax.data import (
    BOS,
    EOS,
    SPECIALS,
    DataError,
    Pair,
    Vocabulary,
    bucketed_batches,
    make_batch,
)
from pyentmax.decoding import ForcedDecoding, SearchResult, forced_decoding, greedy_search
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.tasks.inflection.examples import (
    LANGUAGE_MARK,
    Example,
    encode_examples,
    source_tokens,
    target_tokens,
)
from pyentmax.tasks.sequences import SavedDecoder, SequenceDecoder, load_ensemble
from pyentmax.training import Validation, counting


class WordDecoder(SequenceDecoder):
    """A model of word forms, one network or an ensemble, with its vocabularies.

    Parameters
    ----------
    model : JoinableDecodable
    source, target : Vocabulary
        Of tags and characters, and of the characters of forms.
    """

    def pairs(self, examples: Sequence[Example]) -> list[Pair]:
        """Examples as token ids; a token that the vocabularies lack becomes ``<unk>``."""
        return encode_examples(examples, self.source, self.target, unknown="<unk>")

    def form(self, tokens: Iterable[int]) -> str:
        """The string that some target tokens spell."""
        return "".join(self.target.decode(tokens))

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
            Those of `SequenceDecoder.decode`: ``search``, ``beam``, ``n_best``, ``budget``,
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
        """What the model finds possible at each step of a given form, possible or not.

        Errors as for `inflect`, and a DataError for a character that no form of training has.
        """
        ids = self._source(lemma, tags, language)
        target = self.target.encode(target_tokens(form), what=f"form {form!r}")
        return self.force_tokens(ids, target)

    def force_all(
        self, examples: Sequence[Example], batch_size: int = 64, *, progress: bool = False
    ) -> Iterator[tuple[int, ForcedDecoding]]:
        """The index of each example, and what the model finds possible at each step of its form.

        Yields batch by batch, so that one need not be kept when the next is computed. Parameters
        as for `predict`.
        """
        pairs = self.pairs(examples)
        with counting(len(pairs), "word", progress) as advance:
            for index in bucketed_batches(pairs, batch_size):
                batch = make_batch(pairs, index)
                targets = [pairs[i][1] for i in index]
                decodings = forced_decoding(self.model, batch.source, batch.source_mask, targets)
                yield from zip(map(int, index), decodings, strict=True)
                advance(len(batch))

    def predict(
        self,
        examples: Sequence[Example],
        beam: int = 5,
        batch_size: int = 64,
        *,
        search: str = "beam",
        n_best: int | None = 1,
        budget: int = 1000,
        progress: bool = False,
    ) -> list[SearchResult]:
        """The result of a search for each example, in their order.

        Parameters
        ----------
        batch_size : int, default 64
            Number of examples that are decoded together.
        progress : bool, default False
            Whether to show a bar.
        beam, search, budget
            As for `SequenceDecoder.decode`.
        n_best : int or None, default 1
            As there, for the exact search; a beam looks for all.
        """
        pairs = self.pairs(examples)
        options: dict[str, Any] = {
            "search": search,
            "beam": beam,
            "n_best": n_best if search == "exact" else None,
            "budget": budget,
            "keep_attention": False,
        }
        results: dict[int, SearchResult] = {}
        with counting(len(pairs), "word", progress) as advance:
            for index in bucketed_batches(pairs, batch_size):
                batch = make_batch(pairs, index)
                found = self.decode(batch.source, batch.source_mask, **options)
                results |= zip(map(int, index), found, strict=True)
                advance(len(batch))
        return [results[i] for i in range(len(pairs))]

    def _source(self, lemma: str, tags: str | Sequence[str], language: str | None) -> np.ndarray:
        """The ids of a source; a DataError names what the model does not know."""
        words = tuple(tags.split(";")) if isinstance(tags, str) else tuple(tags)
        if not lemma:
            raise DataError("lemma: expected at least one character, got an empty string")
        bracketed = [t[1:-1] for t in self.source.tokens[len(SPECIALS) :] if len(t) > 1]
        known = [t for t in bracketed if not t.startswith(LANGUAGE_MARK)]
        for tag in words:
            if tag not in known:
                raise DataError(
                    f"unknown tag {tag!r} in {';'.join(words)!r}: expected tags separated by "
                    f"semicolons, from {' '.join(known)}"
                )
        languages = [t.removeprefix(LANGUAGE_MARK) for t in bracketed if t not in known]
        if language is not None and language not in languages:
            expected = f"one of {' '.join(languages)}" if languages else "none, trained without"
            raise DataError(f"unknown language {language!r}: the model expects {expected}")
        if language is None and languages:
            raise DataError(f"language: the model knows several, name one of {' '.join(languages)}")
        tokens = source_tokens(Example(lemma, "", words, language))
        return self.source.encode(tokens, what=f"lemma {lemma!r}")


class Inflector(WordDecoder, SavedDecoder):
    """A single sequence-to-sequence model of word forms, with its vocabularies.

    Parameters
    ----------
    model : RNNSeq2Seq
    source, target : Vocabulary
        Of tags and characters, and of the characters of forms.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.tasks.inflection import Example
    >>> verbs = [Example("play", "played", ("V", "PST")), Example("walk", "walked", ("V", "PST"))]
    >>> inflector = Inflector.untrained(verbs, np.random.default_rng(0), hidden=8)
    >>> len(inflector.source), len(inflector.target)
    (12, 12)
    """

    kind = "inflection model"
    model: RNNSeq2Seq

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
            Fields of :class:`pyentmax.models.rnn_seq2seq.RNNSeq2SeqConfig` but for the two sizes.
        """
        source = Vocabulary.build(source_tokens(example) for example in examples)
        target = Vocabulary.build(target_tokens(example.form) for example in examples)
        shape = RNNSeq2SeqConfig(source_size=len(source), target_size=len(target), **config)
        return cls(RNNSeq2Seq.initialize(shape, rng, bos=BOS, eos=EOS), source, target)

    def validate(self, examples: Sequence[Example], batch_size: int = 128) -> Validation:
        """Mean loss per token, and share of forms that greedy search gets entirely right."""
        pairs = self.pairs(examples)
        loss: Any = 0.0
        tokens = right = 0.0
        for index in bucketed_batches(pairs, batch_size):
            batch = make_batch(pairs, index)
            mean = self.model.loss(self.model.params, batch)
            count = float(batch.target_mask.sum())
            loss = loss + count * mean.data.astype(np.float64)
            if not np.isfinite(float(loss)):  # nothing to decode
                return Validation(float(loss), 0.0)
            tokens += count
            greedy = greedy_search(self.model, batch.source, batch.source_mask)
            for i, found in zip(index, greedy, strict=True):
                # Compared as strings: a form with an unknown character is never right.
                right += self.form(found) == examples[i].form
        return Validation(float(loss) / tokens, right / len(pairs))

    def description(self) -> dict[str, Any]:
        """Configuration and vocabularies, in a form that JSON can hold."""
        return {"config": asdict(self.model.config), **super().description()}

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these parameters and this description."""
        config = RNNSeq2SeqConfig(**description["config"])
        source, target = (Vocabulary.from_json(description[name]) for name in ("source", "target"))
        return cls(RNNSeq2Seq(config, arrays, BOS, EOS), source, target)


def load_word_decoder(paths: Sequence[str | Path]) -> WordDecoder:
    """The model of one checkpoint, or the ensemble of several; errors as for `load_ensemble`."""
    model, first = load_ensemble(Inflector, paths)
    return WordDecoder(model, first.source, first.target)
