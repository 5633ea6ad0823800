"""From sentences to tokens and back: by words, or by sub-words that sentencepiece learns."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.tasks.translation.parallel import SentencePair
from pyentmax.seq2seq.data import SPECIALS, DataError, Vocabulary

NORMALIZATIONS = ("identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
"""Sentencepiece's names of what is done to characters, from nothing to compatibility and case."""
ALGORITHMS = ("unigram", "bpe")
"""A unigram model of sub-words (Kudo 2018), or byte-pair encoding (Sennrich et al. 2016)."""


class Words:
    """Tokens are what stands between spaces.

    Examples
    --------
    >>> Words().split("a dog"), Words().join(["a", "dog"])
    (['a', 'dog'], 'a dog')
    """

    def split(self, sentence: str) -> list[str]:
        """The words."""
        return sentence.split()

    def join(self, tokens: Sequence[str]) -> str:
        """The words with spaces between them."""
        return " ".join(tokens)

    def vocabulary(self, sentences: Iterable[str]) -> Vocabulary:
        """The words that occur."""
        return Vocabulary.build(map(self.split, sentences))

    def state(self) -> bytes:
        """Nothing has been learned."""
        return b""


class Subwords:
    """Sub-words of a sentencepiece model.

    Parameters
    ----------
    model : bytes
        As sentencepiece writes it, with the special tokens of `pyentmax.seq2seq.data` in their
        places, as `learn` makes it.
    where : str
        What the model is, for errors.

    Raises
    ------
    DataError
        If it is not such a model.
    ImportError
        If sentencepiece is not installed.
    """

    def __init__(self, model: bytes, where: str = "sentencepiece model") -> None:
        self._model = model
        processor = _sentencepiece().SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(model)
            pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        except Exception as error:  # RuntimeError and others, as its parts fail
            raise DataError(
                f"{where}: expected a sentencepiece model, got something that it cannot read; is "
                "it damaged, or another file?"
            ) from error
        if tuple(pieces[: len(SPECIALS)]) != SPECIALS:
            raise DataError(
                f"{where}: expected the special tokens {' '.join(SPECIALS)} first, got "
                f"{' '.join(pieces[: len(SPECIALS)])}; train it with --pad_id=0 --bos_id=1 "
                "--eos_id=2 --unk_id=3"
            )
        self._processor, self._pieces = processor, tuple(pieces)

    @classmethod
    def learn(
        cls,
        sentences: Iterable[str],
        size: int,
        seed: int = 0,
        normalization: str = "identity",
        algorithm: str = "unigram",
    ) -> Subwords:
        """A model of all these sentences with a vocabulary of some size, by one of `ALGORITHMS`.

        The model keeps its ``normalization``, one of `NORMALIZATIONS`: with another than the
        default, sentences come back normalised, such as "m2" for "m²". Sentences with "▅", which
        sentencepiece reserves, are not learned from.

        Raises
        ------
        DataError
            If the sentences do not allow for a vocabulary of this size.

        Examples
        --------
        >>> sentences = ["the dog sees the cat", "the cats see the dogs", "a dog and a cat"]
        >>> subwords = Subwords.learn(sentences, size=19)
        >>> subwords.join(subwords.split("the dogs see a cat"))
        'the dogs see a cat'
        """
        spm = _sentencepiece()
        spm.set_random_generator_seed(seed % 2**32)  # sentencepiece takes 32 bits
        encoded = [sentence.encode() for sentence in sentences]
        written = io.BytesIO()
        try:
            spm.SentencePieceTrainer.train(
                sentence_iterator=iter(encoded),
                model_writer=written,
                vocab_size=size,
                character_coverage=1.0,
                normalization_rule_name=normalization,
                model_type=algorithm,
                max_sentence_length=max(map(len, encoded), default=1),  # longer ones are left out
                pad_id=0,
                bos_id=1,
                eos_id=2,
                unk_id=3,
                num_threads=1,  # so that the model is the same each time
                minloglevel=2,
            )
        except (RuntimeError, ValueError) as error:  # the latter of numbers beyond 31 bits
            reason = str(error).rsplit("] ", maxsplit=1)[-1].strip()
            raise DataError(
                f"a vocabulary of {size} sub-words: "
                f"{reason or f'expected more than the special tokens, {len(SPECIALS)}'}"
            ) from error
        return cls(written.getvalue())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Subwords:
        """The model in a file that sentencepiece wrote."""
        return cls(Path(path).read_bytes(), str(path))

    def split(self, sentence: str) -> list[str]:
        """The sub-words."""
        return self._processor.encode(sentence.encode("utf-8"), out_type=str)

    def join(self, tokens: Sequence[str]) -> str:
        """The sentence that they spell."""
        return self._processor.decode_pieces(list(tokens))

    def vocabulary(self, sentences: Iterable[str] = ()) -> Vocabulary:
        """All sub-words of the model."""
        return Vocabulary(self._pieces)

    def state(self) -> bytes:
        """The model."""
        return self._model


Segmenter = Words | Subwords
"""A way to cut sentences into tokens; its ``state`` is written to a file."""


def segmenter_of(state: bytes) -> Segmenter:
    """The segmenter with this state."""
    return Subwords(state) if state else Words()


def learn_subwords(
    pairs: Sequence[SentencePair], size: int, *, separate: bool = False, **options: Any
) -> dict[str, Any]:
    """Joint sub-words of both sides, or as many for each, as arguments of `train_translator`.

    Further options are those of `Subwords.learn`.
    """
    if separate:
        sources, targets = zip(*pairs, strict=True)
        return {
            "segmenter": Subwords.learn(sources, size, **options),
            "target_segmenter": Subwords.learn(targets, size, **options),
        }
    sentences = [side for pair in pairs for side in pair]
    return {"segmenter": Subwords.learn(sentences, size, **options)}


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise ImportError(
            "sub-words need sentencepiece: pip install 'pyentmax[models]', or train on words"
        ) from None
    return sentencepiece
