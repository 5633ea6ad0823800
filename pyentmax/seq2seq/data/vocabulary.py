"""Vocabularies: tokens and their ids."""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyentmax.seq2seq.data.errors import DataError

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")

_LISTED = 80  # most known tokens that an error message lists; of more, it names the closest


@dataclass(frozen=True)
class Vocabulary:
    """A fixed, ordered set of tokens; the id of a token is its position.

    Parameters
    ----------
    tokens : tuple of str
        The special tokens ``<pad>``, ``<s>``, ``</s>``, ``<unk>`` (ids `PAD`, `BOS`, `EOS`, `UNK`)
        first, then all others.

    Raises
    ------
    DataError
        If the special tokens do not come first, or a token occurs twice.

    Examples
    --------
    >>> vocabulary = Vocabulary.build([list("draw"), list("drawn")])
    >>> vocabulary.tokens
    ('<pad>', '<s>', '</s>', '<unk>', 'a', 'd', 'n', 'r', 'w')
    >>> vocabulary.encode("dawn")
    array([5, 4, 8, 6])
    >>> vocabulary.decode([5, 4, 8, 6])
    ['d', 'a', 'w', 'n']
    """

    tokens: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tokens[: len(SPECIALS)] != SPECIALS:
            raise DataError(
                f"the first tokens of a vocabulary must be {', '.join(SPECIALS)}; "
                f"got {', '.join(map(repr, self.tokens[: len(SPECIALS)])) or 'none'}"
            )
        ids = {token: i for i, token in enumerate(self.tokens)}
        if len(ids) < len(self.tokens):
            twice = next(token for i, token in enumerate(self.tokens) if ids[token] != i)
            raise DataError(f"a vocabulary must list each token once; got {twice!r} twice")
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def build(cls, sequences: Iterable[Iterable[str]]) -> Vocabulary:
        """The vocabulary of all tokens in *sequences*, sorted.

        Raises
        ------
        DataError
            If a token is spelled like a special one, such as a tag ``s`` written ``<s>``.

        Examples
        --------
        >>> len(Vocabulary.build([["b", "a"], ["a"]]))
        6
        """
        tokens = {token for sequence in sequences for token in sequence}
        if clash := sorted(tokens.intersection(SPECIALS)):
            raise DataError(
                f"token {clash[0]!r} is spelled like a special token; rename it in the data "
                f"(special are {', '.join(SPECIALS)})"
            )
        return cls(SPECIALS + tuple(sorted(tokens)))

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def encode(
        self, tokens: Sequence[str], *, what: str = "the sequence", unknown: str | None = None
    ) -> NDArray[np.int64]:
        """The ids of *tokens*.

        Parameters
        ----------
        what : str
            What *tokens* are, for the error message, such as ``"lemma 'draw'"``.
        unknown : str, optional
            The token that replaces those outside the vocabulary, and words that are spelled like a
            special token, such as ``"<unk>"``. By default those outside are an error.

        Raises
        ------
        DataError
            If a token is not in the vocabulary; the message names it, *what*, and known tokens, or
            the Unicode normalisation in which the text would be known.

        Examples
        --------
        >>> vocabulary = Vocabulary.build(["abc"])
        >>> vocabulary.encode("bäd", unknown="<unk>")
        array([5, 3, 3])
        >>> vocabulary.encode("bad", what="lemma 'bad'")
        Traceback (most recent call last):
            ...
        pyentmax.seq2seq.data.errors.DataError: unknown character 'd' in lemma 'bad'; known: a b c
        """
        if unknown is None:
            for token in tokens:
                if token not in self._ids:
                    raise DataError(
                        f"unknown {_kind(token)} '{_shown(token)}' in {what}; "
                        f"{self._advice(token, tokens)}"
                    )
            return np.array([self._ids[token] for token in tokens], dtype=np.int64)
        [fallback] = self.encode([unknown], what="the argument 'unknown'")
        ids = np.array([self._ids.get(token, fallback) for token in tokens], dtype=np.int64)
        # What a text says is never one of those that stand for no text.
        return np.where(ids < len(SPECIALS), fallback, ids)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The tokens with the given *ids*, special ones included.

        Raises
        ------
        DataError
            If there is no token with such an id.

        Examples
        --------
        >>> Vocabulary.build(["abc"]).decode([BOS, 6, 4, 5, EOS])
        ['<s>', 'c', 'a', 'b', '</s>']
        """
        tokens = []
        for i in ids:
            if not 0 <= i < len(self.tokens):
                raise DataError(f"expected token ids from 0 to {len(self.tokens) - 1}, got {i}")
            tokens.append(self.tokens[i])
        return tokens

    def to_json(self) -> str:
        """The vocabulary as the JSON list of its tokens.

        Examples
        --------
        >>> Vocabulary.build(["é"]).to_json()
        '["<pad>", "<s>", "</s>", "<unk>", "é"]'
        """
        return json.dumps(self.tokens, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """The vocabulary that `to_json` wrote.

        Raises
        ------
        DataError
            If *text* is not a JSON list of the tokens of a vocabulary.

        Examples
        --------
        >>> vocabulary = Vocabulary.build(["abc"])
        >>> Vocabulary.from_json(vocabulary.to_json()) == vocabulary
        True
        """
        try:
            tokens = json.loads(text)
        except ValueError as error:
            raise DataError(f"expected a vocabulary as a JSON list of strings: {error}") from error
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise DataError(f"expected a vocabulary as a JSON list of strings, got {text[:60]!r}")
        return cls(tuple(tokens))

    def _advice(self, token: str, tokens: Sequence[str]) -> str:
        """The normalisation in which the text is known, or the known tokens of this kind."""
        text = "".join(t for t in tokens if len(t) == 1)
        for form in ("NFC", "NFD"):
            other = unicodedata.normalize(form, text)
            new = set(other).difference(text)
            if new and new <= self._ids.keys() and token not in other:
                return (
                    "text and vocabulary differ in Unicode normalisation: normalise the text to "
                    f"{form}, which the vocabulary knows"
                )
        alike = [t for t in self.tokens[len(SPECIALS) :] if _kind(t) == _kind(token)]
        if not alike:
            return f"no {_kind(token)} is known"
        if len(alike) <= _LISTED:
            return f"known: {' '.join(map(_shown, alike))}"
        close = difflib.get_close_matches(token, alike, n=5, cutoff=0.5)
        return f"{len(alike)} are known" + (f", the closest: {' '.join(close)}" if close else "")


def _kind(token: str) -> str:
    return "character" if len(token) == 1 else "token"


def _shown(token: str) -> str:
    """The token, with a circle below an accent, which would otherwise join what is before it."""
    return f"◌{token}" if unicodedata.combining(token[:1] or " ") else token
