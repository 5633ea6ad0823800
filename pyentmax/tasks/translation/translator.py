"""A model of translation with all that it takes to use it: trained, saved, loaded, searched."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyentmax.calls.devices import array_module, to_host
from pyentmax.data import (
    BOS,
    EOS,
    SPECIALS,
    Batch,
    DataError,
    Pair,
    Vocabulary,
    bucketed_batches,
    make_batch,
)
from pyentmax.decoding import (
    ForcedDecoding,
    Hypothesis,
    JoinableDecodable,
    SearchResult,
    beam_search,
    exact_search,
    forced_decoding,
)
from pyentmax.models.ensemble import Ensemble
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.models.transformer import Transformer, TransformerConfig
from pyentmax.system.blas import limit_blas
from pyentmax.tasks.model_files import best_of, described_model, reading
from pyentmax.tasks.translation.parallel import SentencePair
from pyentmax.tasks.translation.segmentation import Segmenter, Subwords, segmenter_from
from pyentmax.training import (
    CheckpointError,
    Validation,
    counting,
    load_checkpoint,
    save_checkpoint,
)

KIND = "translation model"
ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "rnn": (RNNSeq2Seq, RNNSeq2SeqConfig),
    "transformer": (Transformer, TransformerConfig),
}
"""Name → the class of the model and that of its configuration."""

_SEGMENTER = "segmenter.state"
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # sentencepiece's mark of a word's beginning


class SentenceDecoder:
    """A model, one network or an ensemble, with its vocabularies and its way to cut sentences.

    Parameters
    ----------
    model : JoinableDecodable
    source, target : Vocabulary
    segmenter : Segmenter
    """

    def __init__(
        self,
        model: JoinableDecodable[Any],
        source: Vocabulary,
        target: Vocabulary,
        segmenter: Segmenter,
    ) -> None:
        self.model = model
        self.source, self.target, self.segmenter = source, target, segmenter

    def pairs(self, pairs: Iterable[SentencePair]) -> list[Pair]:
        """Sentence pairs as token ids; what the vocabularies lack becomes ``<unk>``.

        A DataError quotes a source of which no token is left: sub-words leave some characters out.
        """
        split = self.segmenter.split
        return [
            (self.source_ids(source), self.target.encode(split(target), unknown="<unk>"))
            for source, target in pairs
        ]

    def sentence(self, tokens: Iterable[int]) -> str:
        """The sentence that some target tokens make."""
        return self.segmenter.join(self.target.decode(tokens))

    def translate(
        self,
        sentence: str,
        *,
        search: str = "beam",
        beam: int = 5,
        n_best: int | None = None,
        budget: int = 1000,
        max_length: int | None = None,
    ) -> SearchResult:
        """Every translation that the model finds possible, with the certificate of the search.

        Parameters
        ----------
        search : {"beam", "exact"}
        beam, n_best, budget, max_length
            As for `beam_search` and `exact_search`; without ``n_best`` both look for all.

        Raises
        ------
        DataError
            If the sentence is empty.
        ValueError
            If there is no such search, or a number is below 1.
        """
        ids = self.source_ids(sentence)[None]
        decode = _search(search, beam, n_best, budget)
        with limit_blas():
            return decode(self.model, ids, np.ones_like(ids, bool), max_length=max_length)[0]

    def force(self, sentence: str, translation: str) -> ForcedDecoding:
        """What the model finds possible at each step of a given translation."""
        ids = self.source_ids(sentence)[None]
        target = self.target.encode(self.segmenter.split(translation), unknown="<unk>")
        with limit_blas():
            return forced_decoding(self.model, ids, np.ones_like(ids, bool), [target])[0]

    def translate_all(
        self,
        sentences: Sequence[str],
        *,
        beam: int = 5,
        normalize: bool = True,
        batch_size: int = 64,
        progress: bool = False,
    ) -> list[str]:
        """The best translation of each sentence, by a beam search that proves nothing.

        Parameters
        ----------
        normalize : bool
            Whether translations are compared by their mean log-probability per token, end symbol
            included, or by the probability of the whole.
        """
        blocks = self.translate_in_blocks(
            sentences,
            block_size=max(1, len(sentences)),
            beam=beam,
            normalize=normalize,
            batch_size=batch_size,
            progress=progress,
        )
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
        """The translations of `translate_all`, block after block, each when it is done.

        Parameters
        ----------
        block_size : int
            So many sentences that follow each other are sorted by length and cut into batches.
            In small blocks, batches have more padding.
        beam, normalize, batch_size, progress
            As for `translate_all`.

        Raises
        ------
        DataError
            If a sentence is empty, before any is translated.
        ValueError
            If a number is below 1.
        """
        if block_size < 1:
            raise ValueError(f"block_size: expected at least 1, got {block_size}")
        nothing = np.zeros(0, dtype=np.int64)
        pairs: list[Pair] = [(self.source_ids(sentence), nothing) for sentence in sentences]
        with counting(len(pairs), "sentence", progress) as advance:
            for start in range(0, len(pairs), block_size):
                block, found = pairs[start : start + block_size], dict[int, str]()
                for index in bucketed_batches(block, batch_size):
                    batch = make_batch(block, index)
                    best = self._best_of_each(batch, beam, normalize)
                    found |= zip(map(int, index), best, strict=True)
                    advance(len(batch))
                yield [found[i] for i in range(len(block))]

    def _best_of_each(self, batch: Batch, beam: int, normalize: bool) -> Iterator[str]:
        """The best translation of each sentence of a batch."""
        with limit_blas():
            results = beam_search(
                self.model,
                batch.source,
                batch.source_mask,
                beam=beam,
                normalize=normalize,
                keep_attention=False,
                prove=False,
            )
        for result in results:
            chosen = best_by_length(result) if normalize else result.best
            yield self.sentence(chosen.tokens)

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


class Translator(SentenceDecoder):
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

    model: Any

    @classmethod
    @limit_blas()
    def untrained(
        cls,
        architecture: str,
        pairs: Sequence[SentencePair],
        segmenter: Segmenter,
        rng: np.random.Generator,
        **config: Any,
    ) -> Translator:
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

    @limit_blas()
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

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """Configuration and vocabularies, in a form that JSON can hold."""
        return {
            "architecture": self.architecture,
            "config": asdict(self.model.config),
            "source": self.source.to_json(),
            "target": self.target.to_json(),
        }

    def save(self, path: str | Path) -> None:
        """Write the model with all that belongs to it to one ``.npz``, by `save_checkpoint`."""
        state = {_SEGMENTER: np.frombuffer(self.segmenter.state(), dtype=np.uint8)}
        meta = {"kind": KIND, "segmenter": _tokens_of(self.segmenter), **self.description()}
        save_checkpoint(path, self.model.params | state, meta)

    @classmethod
    @limit_blas()
    def load(cls, path: str | Path) -> Translator:
        """Read what :meth:`save` wrote, from the file or from the folder of a run.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        CheckpointError
            If the file is damaged, of another kind, its parts do not fit together, or a parameter
            is not finite.
        """
        path = best_of(path)
        params, meta = load_checkpoint(path, KIND)
        with reading(path):
            segmenter = segmenter_from(params.pop(_SEGMENTER).tobytes())
            network, shape = _architecture(meta["architecture"])
            model, source, target = described_model(network, shape, params, meta)
            _check_segmenter(segmenter, source, target, meta.get("segmenter"))
        return cls(model, source, target, segmenter)


def load_sentence_decoder(paths: Sequence[str | Path]) -> SentenceDecoder:
    """The model of one checkpoint, or the ensemble of several with the same vocabularies.

    Raises
    ------
    CheckpointError
        If a file is damaged, or the models do not have the same vocabularies, or do not cut
        sentences in the same way.
    ValueError
        If there is no path.
    """
    loaded = [Translator.load(path) for path in paths]
    if len(loaded) == 1:
        return loaded[0]
    ensemble = Ensemble([translator.model for translator in loaded])
    first = loaded[0]
    for path, other in zip(paths, loaded, strict=True):
        if (first.source, first.target) != (other.source, other.target):
            raise CheckpointError(
                f"{path}: its vocabularies are not those of {paths[0]}: expected models trained on "
                "the same sentences, to average their probabilities"
            )
        if first.segmenter.state() != other.segmenter.state():
            ours, theirs = (_tokens_of(x.segmenter) for x in (first, other))
            differ = "" if ours != theirs else " of another sentencepiece model"
            raise CheckpointError(
                f"{path}: it cuts sentences into {theirs}, and {paths[0]} into {ours}{differ}: "
                "expected models trained on the same tokens, to average their probabilities"
            )
    return SentenceDecoder(ensemble, first.source, first.target, first.segmenter)


def _tokens_of(segmenter: Segmenter) -> str:
    """What a segmenter cuts sentences into."""
    return "sub-words" if segmenter.state() else "words"


def _check_segmenter(
    segmenter: Segmenter, source: Vocabulary, target: Vocabulary, tokens: Any
) -> None:
    """Raise a ValueError unless a segmenter makes such tokens, and those of both vocabularies.

    Early files do not say which they are, words or sub-words. The latter have the mark of
    sentencepiece, and are not sorted as words are.
    """
    found = _tokens_of(segmenter)
    if tokens is None:
        known = source.tokens[len(SPECIALS) :]
        marked = source == target and any(token.startswith(_SPACE) for token in known)
        tokens = "sub-words" if marked and list(known) != sorted(known) else found
    if tokens != found:
        raise ValueError(f"{_SEGMENTER}: expected that of {str(tokens)[:60]}, got that of {found}")
    if isinstance(segmenter, Subwords) and {source, target} != {segmenter.vocabulary()}:
        raise ValueError(f"{_SEGMENTER}: expected the sub-words of both vocabularies")


def _architecture(name: str) -> tuple[Any, Any]:
    if name not in ARCHITECTURES:
        raise ValueError(f"architecture: expected {' or '.join(ARCHITECTURES)}, got {name!r}")
    return ARCHITECTURES[name]


def _search(
    name: str, beam: int, n_best: int | None, budget: int
) -> Callable[..., list[SearchResult]]:
    """The search of that name, with those of the options that it has."""
    if name == "beam":
        return partial(beam_search, beam=beam, n_best=n_best)
    if name == "exact":
        return partial(exact_search, n_best=n_best, budget=budget)
    raise ValueError(f"search: expected 'beam' or 'exact', got {name!r}")
