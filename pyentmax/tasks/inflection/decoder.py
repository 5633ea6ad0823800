"""From a lemma and its tags to every form that a model finds possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyentmax.data import SPECIALS, DataError, Pair, Vocabulary, bucketed_batches, make_batch
from pyentmax.decoding import (
    ForcedDecoding,
    JoinableDecodable,
    SearchResult,
    beam_search,
    exact_search,
    forced_decoding,
)
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.inflection.examples import (
    LANGUAGE_MARK,
    Example,
    encode_examples,
    source_tokens,
    target_tokens,
)
from pyentmax.training import counting


class WordDecoder:
    """A model of word forms, one network or an ensemble, with its vocabularies.

    Parameters
    ----------
    model : JoinableDecodable
    source, target : Vocabulary
        Of tags and characters, and of the characters of forms.
    """

    def __init__(
        self, model: JoinableDecodable[Any], source: Vocabulary, target: Vocabulary
    ) -> None:
        self.model = model
        self.source, self.target = source, target

    # --- token ids --------------------------------------------------------------------------------
    def pairs(self, examples: Sequence[Example]) -> list[Pair]:
        """Examples as token ids; a token that the vocabularies lack becomes ``<unk>``."""
        return encode_examples(examples, self.source, self.target, unknown="<unk>")

    def form(self, tokens: Iterable[int]) -> str:
        """The string that some target tokens spell."""
        return "".join(self.target.decode(tokens))

    # --- use --------------------------------------------------------------------------------------
    def inflect(
        self,
        lemma: str,
        tags: str | Sequence[str],
        language: str | None = None,
        *,
        search: str = "beam",
        beam: int = 5,
        n_best: int | None = None,
        budget: int = 1000,
        max_length: int | None = None,
        keep_attention: bool = True,
        blas_threads: int | None = None,
    ) -> SearchResult:
        """Every form that the model finds possible, with the certificate of the search.

        Parameters
        ----------
        tags : str or sequence of str
            Such as ``"V;V.PTCP;PST"``.
        language : str, optional
            Needed for a model of several languages.
        search : {"beam", "exact"}
            `beam_search`, which may lose forms and says so, or `exact_search`, which proves.
        beam : int, default 5
            Number of open prefixes that the beam keeps at each step.
        n_best : int, optional
            The exact search stops once this many forms are proved the best, the beam once no open
            prefix can change them. If not given, they look for all.
        budget : int, default 1000
            Largest number of prefixes that the exact search expands.
        max_length : int, optional
            Length of the longest form, in characters.
        keep_attention : bool, default True
            Whether the forms carry their attention weights. Of a lemma of hundreds of letters,
            those of thousands of forms take gigabytes.
        blas_threads : int, optional
            How many threads BLAS may use: 1 unless given, or unless the call stands within a
            :func:`pyentmax.system.blas.limit_blas` block.

        Raises
        ------
        DataError
            If the model has never seen a character of the lemma, a tag or the language.
        ValueError
            If there is no such search, or a number is below 1.
        """
        ids, mask = self._source(lemma, tags, language)
        decode = _search(search, beam, n_best, budget)
        with limit_blas(blas_threads):
            found = decode(
                self.model, ids, mask, max_length=max_length, keep_attention=keep_attention
            )
        return found[0]

    def force(
        self,
        lemma: str,
        tags: str | Sequence[str],
        form: str,
        language: str | None = None,
        *,
        blas_threads: int | None = None,
    ) -> ForcedDecoding:
        """What the model finds possible at each step of a given form.

        Parameters
        ----------
        lemma, tags, language, blas_threads
            As for `inflect`.
        form : str
            Any string of characters that the target vocabulary has, possible or not.

        Raises
        ------
        DataError
            As for `inflect`, or if the target vocabulary lacks a character of the form.
        """
        ids, mask = self._source(lemma, tags, language)
        _check_characters(f"form {form!r}", form, self.target, "training data's forms")
        target = self.target.encode(target_tokens(form), what=f"form {form!r}")
        with limit_blas(blas_threads):
            return forced_decoding(self.model, ids, mask, [target])[0]

    def force_all(
        self,
        examples: Sequence[Example],
        batch_size: int = 64,
        *,
        progress: bool = False,
        blas_threads: int | None = None,
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
                with limit_blas(blas_threads):
                    decodings = forced_decoding(
                        self.model, batch.source, batch.source_mask, targets
                    )
                yield from zip(map(int, index), decodings, strict=True)
                advance(len(batch))

    def _source(
        self, lemma: str, tags: str | Sequence[str], language: str | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The token ids of one source, as a batch of one, and their mask."""
        words = tuple(tags.split(";")) if isinstance(tags, str) else tuple(tags)
        self._check_known(lemma, words, language)
        tokens = source_tokens(Example(lemma, "", words, language))
        ids = self.source.encode(tokens, what=f"{';'.join(words)} {lemma}")[None]
        return ids, np.ones_like(ids, bool)

    def _check_known(self, lemma: str, tags: Sequence[str], language: str | None) -> None:
        """Raise a DataError that names what the model does not know, as the user wrote it."""
        if not lemma:
            raise DataError("lemma: expected at least one character, got an empty string")
        bracketed = [t[1:-1] for t in self.source.tokens[len(SPECIALS) :] if len(t) > 1]
        languages = [
            t.removeprefix(LANGUAGE_MARK) for t in bracketed if t.startswith(LANGUAGE_MARK)
        ]
        known = [t for t in bracketed if not t.startswith(LANGUAGE_MARK)]
        _check_characters(f"lemma {lemma!r}", lemma, self.source, "training data")
        for tag in tags:
            if tag not in known:
                raise DataError(
                    f"unknown tag {tag!r} in {';'.join(tags)!r}: expected tags separated by "
                    f"semicolons, from {' '.join(known)}"
                )
        if language is not None and language not in languages:
            what = f"one of {' '.join(languages)}" if languages else "none, trained without them"
            raise DataError(f"unknown language {language!r}: the model expects {what}")
        if language is None and languages:
            raise DataError(f"language: the model knows several, name one of {' '.join(languages)}")

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
        blas_threads: int | None = None,
    ) -> list[SearchResult]:
        """The result of a search for each example, in their order.

        Parameters
        ----------
        batch_size : int, default 64
            Examples that are decoded together.
        progress : bool, default False
            Whether to show a bar.
        beam, search, budget, blas_threads
            As for `inflect`.
        n_best : int or None, default 1
            As for `inflect`, of the exact search; a beam looks for all.
        """
        decode = _search(search, beam, n_best if search == "exact" else None, budget)
        pairs = self.pairs(examples)
        results: dict[int, SearchResult] = {}
        with limit_blas(blas_threads), counting(len(pairs), "word", progress) as advance:
            for index in bucketed_batches(pairs, batch_size):
                batch = make_batch(pairs, index)
                found = decode(self.model, batch.source, batch.source_mask, keep_attention=False)
                results |= {int(i): result for i, result in zip(index, found, strict=True)}
                advance(len(batch))
        return [results[i] for i in range(len(pairs))]


def _check_characters(what: str, text: str, known: Vocabulary, where: str) -> None:
    for character in text:
        if character not in known:
            alphabet = "".join(t for t in known.tokens if len(t) == 1)
            raise DataError(
                f"unknown character {character!r} in {what}: expected characters that occur in the "
                f"{where}, {alphabet!r}"
            )


def _search(
    name: str, beam: int, n_best: int | None, budget: int
) -> Callable[..., list[SearchResult]]:
    """The search of that name, with those of the options that it has."""
    if name == "beam":
        return partial(beam_search, beam=beam, n_best=n_best)
    if name == "exact":
        return partial(exact_search, n_best=n_best, budget=budget)
    raise ValueError(f"search: expected 'beam' or 'exact', got {name!r}")
