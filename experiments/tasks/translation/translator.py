"""A model of translation with its vocabularies: trained, saved, loaded, searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from experiments.attention_start import before_update
from experiments.rnn_start import StartedConfig, StartedRNN
from experiments.tasks import fit
from experiments.tasks.translation.parallel import SentencePair
from experiments.tasks.translation.segmentation import Segmenter, Words, segmenter_of
from pyentmax.seq2seq.data import (
    BOS,
    EOS,
    UNK,
    BucketedPairs,
    DataError,
    Pair,
    TokenBatches,
    Vocabulary,
    bucketed_batches,
    make_batch,
)
from pyentmax.seq2seq.decoding import ForcedDecoding, Hypothesis, SearchResult
from pyentmax.seq2seq.inflection.saved_model import SequenceModel, batches_of, saved_config
from pyentmax.seq2seq.models.transformer import Transformer, TransformerConfig
from pyentmax.seq2seq.training import (
    History,
    RunOptions,
    TrainingConfig,
    Validation,
    counting,
    fingerprint,
)

ARCHITECTURES: dict[str, tuple[Any, Any]] = {
    "rnn": (StartedRNN, StartedConfig),
    "transformer": (Transformer, TransformerConfig),
}
"""Name → the class of the model and that of its configuration."""

_SEGMENTER, _TARGET_SEGMENTER = "segmenter.state", "target_segmenter.state"


class Translator(SequenceModel):
    """A model of translation, one network or an ensemble, with its vocabularies.

    Parameters
    ----------
    model : RNNSeq2Seq, Transformer or Ensemble
    source, target : Vocabulary
    segmenter : Segmenter
        Cuts sentences into tokens.
    target_segmenter : Segmenter, optional
        Cuts those of the target, if they are cut in another way.

    Examples
    --------
    >>> pairs = [SentencePair("ein hund", "a dog"), SentencePair("eine katze", "a cat")]
    >>> shape = {"width": 8, "layers": 1, "heads": 2, "inner": 8}
    >>> rng = np.random.default_rng(0)
    >>> translator = Translator.untrained("transformer", pairs, Words(), rng, **shape)
    >>> len(translator.source), len(translator.target)
    (8, 7)
    """

    kind = "translation model"
    separator, noun = " ", "translation"

    def __init__(
        self,
        model: Any,
        source: Vocabulary,
        target: Vocabulary,
        segmenter: Segmenter,
        target_segmenter: Segmenter | None = None,
    ) -> None:
        super().__init__(model, source, target)
        self.segmenter = segmenter
        self.target_segmenter = target_segmenter or segmenter

    @classmethod
    def untrained(
        cls,
        architecture: str,
        pairs: Sequence[SentencePair],
        segmenter: Segmenter,
        rng: np.random.Generator,
        target_segmenter: Segmenter | None = None,
        **config: Any,
    ) -> Self:
        """A model with random parameters, and vocabularies of what occurs in the pairs.

        Parameters
        ----------
        architecture : {"rnn", "transformer"}
        segmenter : Segmenter
        rng : numpy.random.Generator
            Draws the parameters.
        target_segmenter : Segmenter, optional
        **config
            Fields of the architecture's configuration but for the two sizes.
        """
        source = segmenter.vocabulary(pair.source for pair in pairs)
        target = (target_segmenter or segmenter).vocabulary(pair.target for pair in pairs)
        network, shape = _architecture(architecture)
        sizes = {"source_size": len(source), "target_size": len(target)}
        model = network.initialize(shape(**sizes, **config), rng, bos=BOS, eos=EOS)
        return cls(model, source, target, segmenter, target_segmenter)

    def with_model(self, model: Any) -> Self:
        """Another model with the same vocabularies."""
        return type(self)(model, self.source, self.target, self.segmenter, self.target_segmenter)

    @property
    def architecture(self) -> str:
        """The name of the model's class in `ARCHITECTURES`."""
        return next(
            name for name, (network, _) in ARCHITECTURES.items() if isinstance(self.model, network)
        )

    def pairs(self, pairs: Iterable[SentencePair]) -> list[Pair]:
        """Sentence pairs as token ids; what the vocabularies lack becomes ``<unk>``.

        A DataError quotes a source without any token: sub-words leave some characters out.
        """
        return [(self.source_ids(source), self.target_ids(target)) for source, target in pairs]

    def sentence(self, tokens: Iterable[int]) -> str:
        """The sentence that some target tokens make."""
        return self.target_segmenter.join(self.target.decode(tokens))

    def source_ids(self, sentence: str) -> np.ndarray:
        """The ids of a source sentence, which must not be empty."""
        if not isinstance(sentence, str):
            raise TypeError(
                f"sentence: expected a str, got {sentence!r}; translate_all translates several"
            )
        tokens = self.segmenter.split(sentence)
        if not tokens:
            raise DataError(f"sentence {sentence!r}: expected a word or a sub-word, got none")
        return self.source.encode(tokens, unknown="<unk>")

    def target_ids(self, sentence: str) -> np.ndarray:
        """The ids of a target sentence."""
        return self.target.encode(self.target_segmenter.split(sentence), unknown="<unk>")

    # --- decoding ---------------------------------------------------------------------------------
    def translate(self, sentence: str, **options: Any) -> SearchResult:
        """Every translation that the model finds possible, with the certificate of the search.

        A hypothesis is a sequence of tokens. With sub-words two of them may spell the same
        sentence, cut differently; its probability is then their sum.

        Parameters
        ----------
        **options
            Those of `SequenceModel.decode`: ``search``, ``beam``, ``n_best``, ``budget``,
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
        return self.force_tokens(self.source_ids(sentence), self.target_ids(translation))

    def translate_all(
        self, sentences: Sequence[str], *, normalize: bool = True, **options: Any
    ) -> Iterator[str]:
        """The best translation of each sentence, in their order, by a beam that proves nothing.

        Parameters
        ----------
        normalize : bool
            Whether translations are compared by their mean log-probability per token, end symbol
            included, or by the probability of the whole.
        **options
            As for `search_all`.

        Raises
        ------
        DataError
            If a sentence is empty, before any is translated.
        ValueError
            If a number is below 1.
        """
        options |= {"n_best": 1, "normalize": normalize, "prove": False}
        for result in self.search_all(sentences, **options):
            yield self.sentence(ranked(result, normalize)[0].tokens)

    def search_all(
        self,
        sentences: Sequence[str],
        *,
        block_size: int = 512,
        batch_size: int = 64,
        progress: bool = False,
        **options: Any,
    ) -> Iterator[SearchResult]:
        """The result of a search for each sentence, in their order.

        Parameters
        ----------
        block_size : int
            Number of consecutive sentences that are sorted by length and cut into batches, and
            yielded when all of them are done. In small blocks, batches have more padding.
        batch_size : int
            Number of sentences that are decoded together.
        progress : bool
            Whether to show a bar.
        **options
            As for `translate`.
        """
        if block_size < 1:
            raise ValueError(f"block_size: expected at least 1, got {block_size}")
        pairs: list[Pair] = [(self.source_ids(s), np.zeros(0, np.int64)) for s in sentences]
        options["keep_attention"] = False
        with counting(len(pairs), "sentence", progress) as advance:
            for start in range(0, len(pairs), block_size):
                block, by_index = pairs[start : start + block_size], dict[int, SearchResult]()
                for index in bucketed_batches(block, batch_size):
                    batch = make_batch(block, index)
                    results = self.decode(batch.source, batch.source_mask, **options)
                    by_index |= zip(map(int, index), results, strict=True)
                    advance(len(batch))
                yield from (by_index[i] for i in range(len(block)))

    def validate(self, pairs: Sequence[Pair], batch_size: int = 128) -> Validation:
        """Mean loss per token, and the share of tokens that are the most probable ones.

        The model reads the reference up to each token. The loss is that of training, without
        dropout; a token outside the vocabulary is never right.
        """
        model, loss, tokens, right = self.model, 0.0, 0, 0
        for batch in batches_of(pairs, batch_size, "pair", False):
            scores = model.scores(model.params, batch.source, batch.source_mask, batch.target_in)
            if isinstance(model, StartedRNN):
                scores = scores.swapaxes(0, 1)  # its time comes first
            weight = batch.target_mask.astype(scores.dtype)
            smoothing = model.config.label_smoothing
            options = {"weight": weight, "reduction": "sum", "label_smoothing": smoothing}
            loss += float(model.output.loss(scores, batch.target_out, **options).data)
            known = batch.target_mask & (batch.target_out != UNK)
            hits = (np.argmax(scores.data, axis=-1) == batch.target_out) & known
            right += int(hits.sum())
            tokens += int(batch.target_mask.sum())
        return Validation(loss / tokens, right / tokens)

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """Architecture, configuration and vocabularies, in a form that JSON can hold."""
        return {"architecture": self.architecture, **super().description()}

    def segmenter_states(self) -> dict[str, bytes]:
        """What the segmenter has learned, or each of the two, by its name in a file."""
        states = {_SEGMENTER: self.segmenter.state()}
        if self.target_segmenter is not self.segmenter:
            states[_TARGET_SEGMENTER] = self.target_segmenter.state()
        return states

    def arrays(self) -> dict[str, Any]:
        """The parameters, and what the segmenters have learned."""
        learned = {n: np.frombuffer(x, np.uint8) for n, x in self.segmenter_states().items()}
        return super().arrays() | learned

    @classmethod
    def restore(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """The model with these arrays and this description."""
        states = [arrays.pop(n) for n in (_SEGMENTER, _TARGET_SEGMENTER) if n in arrays]
        network, shape = _architecture(description["architecture"])
        source, target = (Vocabulary.from_json(description[name]) for name in ("source", "target"))
        model = network(shape(**saved_config(description)), arrays, BOS, EOS)
        return cls(model, source, target, *(segmenter_of(x.tobytes()) for x in states))

    def shared(self) -> dict[str, Any]:
        """What has to be the same in models whose probabilities are averaged."""
        return super().shared() | {"way to cut sentences": self.segmenter_states()}


def score(hypothesis: Hypothesis, normalize: bool) -> float:
    """What hypotheses are compared by: the mean log-probability per token, end symbol included.

    Or, if it is not to be normalised, that of the whole.
    """
    return hypothesis.log_prob / (len(hypothesis.tokens) + 1 if normalize else 1)


def ranked(result: SearchResult, normalize: bool) -> list[Hypothesis]:
    """The hypotheses of a result, the best one first."""
    return sorted(result.hypotheses, key=lambda h: -score(h, normalize))


def train_translator(
    architecture: str,
    pairs: Sequence[SentencePair],
    dev: Sequence[SentencePair],
    config: TrainingConfig,
    options: RunOptions | None = None,
    *,
    segmenter: Segmenter | None = None,
    target_segmenter: Segmenter | None = None,
    tokens: int = 2048,
    batch_size: int | None = None,
    on_validation: Callable[[Translator, Validation], None] | None = None,
    **model: Any,
) -> tuple[Translator, History]:
    """Train a model of translation; returns it with its history.

    Parameters
    ----------
    architecture : {"rnn", "transformer"}
    pairs, dev : sequences of SentencePair
        To learn from, and to validate on: the best model is that with the most tokens right where
        it reads the reference up to each.
    config : TrainingConfig
        Its seed fixes the initial parameters too.
    options : RunOptions, optional
        Where and how to run, as for :func:`pyentmax.seq2seq.training.train`, whose errors may come.
    segmenter, target_segmenter : Segmenter, optional
        By default words, and the same for both sides.
    tokens, batch_size : int
        Tokens per batch, padding included; or pairs per batch, if ``batch_size`` is given.
    on_validation : callable, optional
        Called at each validation with the model as it is then, and the result.
    **model
        Fields of the architecture's configuration.
    """
    rng = np.random.default_rng(config.seed)
    segmenters = (segmenter or Words(), rng, target_segmenter)
    translator = Translator.untrained(architecture, pairs, *segmenters, **model)
    encoded, held_out = translator.pairs(pairs), translator.pairs(dev)
    batches: Any
    if batch_size is None:
        batches, size = TokenBatches(encoded, tokens), {"tokens": tokens}
    else:
        batches, size = BucketedPairs(encoded, batch_size), {"batch_size": batch_size}
    states = translator.segmenter_states().values()
    history = fit(
        translator,
        batches,
        config,
        lambda: translator.validate(held_out),
        options,
        data={
            "train": fingerprint(pairs),
            "dev": fingerprint(dev),
            "segmenter": fingerprint("".join(state.hex() for state in states)),
            **size,
        },
        on_validation=on_validation,
        before_update=before_update(config, translator.model),
    )
    return translator, history


def _architecture(name: str) -> tuple[Any, Any]:
    if name not in ARCHITECTURES:
        raise ValueError(f"architecture: expected {' or '.join(ARCHITECTURES)}, got {name!r}")
    return ARCHITECTURES[name]
