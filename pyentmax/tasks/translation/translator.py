"""A model of translation with all that it takes to use it: trained, saved, loaded, searched."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from pyentmax.calls.devices import array_module, to_host
from pyentmax.data import (
    BOS,
    EOS,
    DataError,
    Pair,
    Vocabulary,
    bucketed_batches,
    make_batch,
)
from pyentmax.decoding import ForcedDecoding, Hypothesis, JoinableDecodable, SearchResult
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.models.transformer import Transformer, TransformerConfig
from pyentmax.tasks.sequences import SavedDecoder, SequenceDecoder, load_ensemble
from pyentmax.tasks.translation.parallel import SentencePair
from pyentmax.tasks.translation.segmentation import Segmenter, segmenter_from
from pyentmax.training import Validation, counting

ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "rnn": (RNNSeq2Seq, RNNSeq2SeqConfig),
    "transformer": (Transformer, TransformerConfig),
}
"""Name → the class of the model and that of its configuration."""

_SEGMENTER = "segmenter.state"


class SentenceDecoder(SequenceDecoder):
    """A model, one network or an ensemble, with its vocabularies and its way to cut sentences.

    Parameters
    ----------
    model : JoinableDecodable
    source, target : Vocabulary
    segmenter : Segmenter
    """

    separator, noun = " ", "translation"

    def __init__(
        self,
        model: JoinableDecodable[Any],
        source: Vocabulary,
        target: Vocabulary,
        segmenter: Segmenter,
    ) -> None:
        super().__init__(model, source, target)
        self.segmenter = segmenter

    def pairs(self, pairs: Iterable[SentencePair]) -> list[Pair]:
        """Sentence pairs as token ids; what the vocabularies lack becomes ``<unk>``.

        A DataError quotes a source without any token: sub-words leave some characters out.
        """
        split = self.segmenter.split
        return [
            (self.source_ids(source), self.target.encode(split(target), unknown="<unk>"))
            for source, target in pairs
        ]

    def sentence(self, tokens: Iterable[int]) -> str:
        """The sentence that some target tokens make."""
        return self.segmenter.join(self.target.decode(tokens))

    def translate(self, sentence: str, **options: Any) -> SearchResult:
        """Every translation that the model finds possible, with the certificate of the search.

        Parameters
        ----------
        **options
            Those of `SequenceDecoder.decode`: ``search``, ``beam``, ``n_best``, ``budget``,
            ``max_length``, ``keep_attention``.

        Raises
        ------
        DataError
            If the sentence is empty.
        ValueError
            If there is no such search, or a number is below 1.
        """
        return self.decode(self.source_ids(sentence)[None], **options)[0]

    def force(self, sentence: str, translation: str) -> ForcedDecoding:
        """What the model finds possible at each step of a given translation."""
        target = self.target.encode(self.segmenter.split(translation), unknown="<unk>")
        return self.force_tokens(self.source_ids(sentence), target)

    def translate_all(self, sentences: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each sentence, by a beam search that proves nothing.

        ``options`` are those of `translate_in_blocks`, which this does in a single block.
        """
        blocks = self.translate_in_blocks(sentences, block_size=max(1, len(sentences)), **options)
        return [translation for block in blocks for translation in block]

    def translate_in_blocks(
        self,
        sentences: Sequence[str],
        *,
        block_size: int = 512,
        beam: int = 5,
        normalize: bool = True,
        batch_size: int = 64,
        progress: bool = False,
    ) -> Generator[list[str], None, None]:
        """The best translations of some sentences, block after block, each when it is done.

        Parameters
        ----------
        block_size : int
            Number of consecutive sentences that are sorted by length and cut into batches. In small
            blocks, batches have more padding.
        beam : int
            Number of open prefixes kept at each step.
        normalize : bool
            Whether translations are compared by their mean log-probability per token, end symbol
            included, or by the probability of the whole.
        batch_size : int
            Number of sentences that are decoded together.
        progress : bool
            Whether to show a bar.

        Raises
        ------
        DataError
            If a sentence is empty, before any is translated.
        ValueError
            If a number is below 1.
        """
        if block_size < 1:
            raise ValueError(f"block_size: expected at least 1, got {block_size}")
        no_target = np.zeros(0, dtype=np.int64)
        pairs: list[Pair] = [(self.source_ids(sentence), no_target) for sentence in sentences]
        options: dict[str, Any] = {
            "beam": beam,
            "n_best": 1,
            "normalize": normalize,
            "keep_attention": False,
            "prove": False,
        }
        with counting(len(pairs), "sentence", progress) as advance:
            for start in range(0, len(pairs), block_size):
                block, found = pairs[start : start + block_size], dict[int, str]()
                for index in bucketed_batches(block, batch_size):
                    batch = make_batch(block, index)
                    results = self.decode(batch.source, batch.source_mask, **options)
                    for i, result in zip(map(int, index), results, strict=True):
                        best = best_by_length(result) if normalize else result.best
                        found[i] = self.sentence(best.tokens)
                    advance(len(batch))
                yield [found[i] for i in range(len(block))]

    def source_ids(self, sentence: str) -> np.ndarray:
        """The ids of a source sentence, which must not be empty."""
        tokens = self.segmenter.split(sentence)
        if not tokens:
            raise DataError(f"sentence {sentence!r}: expected a word or a sub-word, got none")
        return self.source.encode(tokens, unknown="<unk>")


def best_by_length(result: SearchResult) -> Hypothesis:
    """The hypothesis with the highest mean log-probability per token, its end symbol included.

    Examples
    --------
    >>> listed = (Hypothesis((5,), -1.0), Hypothesis((6, 7, 8), -1.2))
    >>> best_by_length(SearchResult(listed, False, 0.6, "")).tokens
    (6, 7, 8)
    """
    return max(result.hypotheses, key=lambda h: h.log_prob / (len(h.tokens) + 1))


class Translator(SentenceDecoder, SavedDecoder):
    """A single network of translation, with its vocabularies.

    Examples
    --------
    >>> from pyentmax.tasks.translation.segmentation import Words
    >>> pairs = [SentencePair("ein hund", "a dog"), SentencePair("eine katze", "a cat")]
    >>> shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    >>> rng = np.random.default_rng(0)
    >>> translator = Translator.untrained("transformer", pairs, Words(), rng, **shape)
    >>> len(translator.source), len(translator.target)
    (8, 7)
    """

    kind = "translation model"
    model: Any

    @classmethod
    def untrained(
        cls,
        architecture: str,
        pairs: Sequence[SentencePair],
        segmenter: Segmenter,
        rng: np.random.Generator,
        **config: Any,
    ) -> Self:
        """A model with random parameters, and vocabularies of what occurs in the pairs.

        Parameters
        ----------
        architecture : {"rnn", "transformer"}
        segmenter : Segmenter
        rng : numpy.random.Generator
            Draws the parameters.
        **config
            Fields of the architecture's configuration but for the two sizes.
        """
        source = segmenter.vocabulary(pair.source for pair in pairs)
        target = segmenter.vocabulary(pair.target for pair in pairs)
        network, shape = _architecture(architecture)
        sizes = {"source_size": len(source), "target_size": len(target)}
        model = network.initialize(shape(**sizes, **config), rng, bos=BOS, eos=EOS)
        return cls(model, source, target, segmenter)

    @property
    def architecture(self) -> str:
        """The name of the model's class in `ARCHITECTURES`."""
        return next(
            name for name, (network, _) in ARCHITECTURES.items() if isinstance(self.model, network)
        )

    def validate(self, pairs: Sequence[Pair], batch_size: int = 128) -> Validation:
        """Mean loss per token, and the share of tokens that are the most probable ones.

        The model reads the reference up to each token. The loss is that of training, without
        dropout; a token outside the vocabulary is never right.
        """
        model, loss, tokens, right = self.model, 0.0, 0, 0
        for index in bucketed_batches(pairs, batch_size):
            batch = make_batch(pairs, index).on(model.xp)
            arrays = (batch.source, batch.source_mask, batch.target_in)
            scores = model.scores(model.params, *arrays)
            if isinstance(model, RNNSeq2Seq):
                scores = scores.swapaxes(0, 1)  # its time comes first
            xp = array_module(scores.data)
            weight = batch.target_mask.astype(scores.dtype)
            smoothing = model.config.label_smoothing
            options = {"weight": weight, "reduction": "sum", "label_smoothing": smoothing}
            loss += float(model.output.loss(scores, batch.target_out, **options).data)
            unknown = self.target.encode(["<unk>"])[0]
            known = batch.target_mask & (batch.target_out != unknown)
            hits = (xp.argmax(scores.data, axis=-1) == batch.target_out) & known
            right += int(to_host(hits.sum()))
            tokens += int(to_host(batch.target_mask.sum()))
        return Validation(loss / tokens, right / tokens)

    def description(self) -> dict[str, Any]:
        """Architecture, configuration and vocabularies, in a form that JSON can hold."""
        return {
            "architecture": self.architecture,
            "config": asdict(self.model.config),
            **super().description(),
        }

    def arrays(self) -> dict[str, Any]:
        """The parameters, and what the segmenter has learned."""
        state = np.frombuffer(self.segmenter.state(), dtype=np.uint8)
        return super().arrays() | {_SEGMENTER: state}

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these arrays and this description."""
        segmenter = segmenter_from(arrays.pop(_SEGMENTER).tobytes())
        network, shape = _architecture(description["architecture"])
        source, target = (Vocabulary.from_json(description[name]) for name in ("source", "target"))
        model = network(shape(**description["config"]), arrays, BOS, EOS)
        return cls(model, source, target, segmenter)

    def shared(self) -> dict[str, Any]:
        """What has to be the same in models whose probabilities are averaged."""
        return super().shared() | {"way to cut sentences": self.segmenter.state()}


def load_sentence_decoder(paths: Sequence[str | Path]) -> SentenceDecoder:
    """The model of one checkpoint, or the ensemble of several; errors as for `load_ensemble`."""
    model, first = load_ensemble(Translator, paths)
    return SentenceDecoder(model, first.source, first.target, first.segmenter)


def _architecture(name: str) -> tuple[Any, Any]:
    if name not in ARCHITECTURES:
        raise ValueError(f"architecture: expected {' or '.join(ARCHITECTURES)}, got {name!r}")
    return ARCHITECTURES[name]
