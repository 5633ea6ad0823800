"""Morphological inflection: from a lemma and its tags to every form that a model finds possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyentmax.calls.devices import device_module
from pyentmax.data import (
    BOS,
    EOS,
    SPECIALS,
    DataError,
    Example,
    Pair,
    Vocabulary,
    bucketed_batches,
    encode_examples,
    make_batch,
    source_tokens,
    target_tokens,
)
from pyentmax.decoding import (
    ForcedDecoding,
    JoinableDecodable,
    SearchResult,
    beam_search,
    exact_search,
    forced_decoding,
    greedy_search,
)
from pyentmax.models.ensemble import Ensemble
from pyentmax.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.training import (
    BEST,
    LAST,
    CheckpointError,
    History,
    TrainingConfig,
    Validation,
    counting,
    fingerprint,
    load_checkpoint,
    save_checkpoint,
    train,
)

KIND = "inflection model"
LATER_OPTIONS = {"score": "bilinear", "fertility": None}


class WordDecoder:
    """Any model of forms, one network or an ensemble, with the vocabularies of what it reads.

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

    # --- numbers of tokens ------------------------------------------------------------------------
    def pairs(self, examples: Sequence[Example]) -> list[Pair]:
        """Token numbers of source and target; a token never seen in training is ``<unk>``."""
        return encode_examples(examples, self.source, self.target, unknown="<unk>")

    def form(self, tokens: Iterable[int]) -> str:
        """The string that target tokens spell."""
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
        best: int | None = None,
        budget: int = 1000,
        max_length: int | None = None,
    ) -> SearchResult:
        """Every form that the model finds possible, with the certificate of the search.

        Parameters
        ----------
        lemma : str
        tags : str or sequence of str
            Such as ``"V;V.PTCP;PST"``.
        language : str, optional
            For a model of several languages.
        search : {"beam", "exact"}
            `beam_search`, which may lose forms and says so, or `exact_search`, which proves.
        beam : int, default 5
            Open prefixes kept at each step of the beam.
        best : int, optional
            The exact search stops once so many forms are proved the best; not given, it lists all.
        budget : int
            Most prefixes that the exact search expands.
        max_length : int, optional
            Longest form, in characters.

        Raises
        ------
        DataError
            If the model has never seen a character of the lemma, a tag or the language.
        ValueError
            If there is no such search, or a number is under 1.
        """
        ids, mask = self._source(lemma, tags, language)
        options = {"beam": beam} if search == "beam" else {"n_best": best, "budget": budget}
        return _search(search)(self.model, ids, mask, max_length=max_length, **options)[0]

    def force(
        self, lemma: str, tags: str | Sequence[str], form: str, language: str | None = None
    ) -> ForcedDecoding:
        """What the model says at each step of a form that it is given.

        Parameters
        ----------
        lemma, tags, language
            As for `inflect`.
        form : str
            Any string of characters that the model can write, whether it finds it possible or not.

        Raises
        ------
        DataError
            As for `inflect`, or if the form has a character that the model cannot write.
        """
        ids, mask = self._source(lemma, tags, language)
        for character in form:
            if character not in self.target:
                alphabet = "".join(t for t in self.target.tokens if len(t) == 1)
                raise DataError(
                    f"unknown character {character!r} in form {form!r}: expected characters that "
                    f"occur in the training data's forms, {alphabet!r}"
                )
        target = self.target.encode(target_tokens(form), what=f"form {form!r}")
        return forced_decoding(self.model, ids, mask, [target])[0]

    def force_all(
        self, examples: Sequence[Example], batch_size: int = 64, *, progress: bool = False
    ) -> Iterator[tuple[int, ForcedDecoding]]:
        """The place of each example and what the model says while its own form is forced on it.

        Batch by batch, in the order of the batches: what came can be forgotten before the next.
        """
        pairs = self.pairs(examples)
        with counting(len(pairs), "word", progress) as advance:
            for index in bucketed_batches(pairs, batch_size):
                batch = make_batch(pairs, index)
                targets = [pairs[i][1] for i in index]
                decodings = forced_decoding(self.model, batch.source, batch.source_mask, targets)
                yield from zip(map(int, index), decodings, strict=True)
                advance(len(batch))

    def _source(
        self, lemma: str, tags: str | Sequence[str], language: str | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Token numbers of one source, in a batch of its own, and their mask."""
        words = tuple(tags.split(";")) if isinstance(tags, str) else tuple(tags)
        self._check_known(lemma, words, language)
        tokens = source_tokens(Example(lemma, "", words, language))
        ids = self.source.encode(tokens, what=f"{';'.join(words)} {lemma}")[None]
        return ids, np.ones_like(ids, bool)

    def _check_known(self, lemma: str, tags: Sequence[str], language: str | None) -> None:
        """Name a tag or language that the model has never seen, as the user wrote it."""
        if not lemma:
            raise DataError("lemma: expected at least one character, got an empty string")
        bracketed = [t[1:-1] for t in self.source.tokens[len(SPECIALS) :] if len(t) > 1]
        prefix = "lang="
        languages = [t.removeprefix(prefix) for t in bracketed if t.startswith(prefix)]
        known = [t for t in bracketed if not t.startswith(prefix)]
        for character in lemma:
            if character not in self.source:
                alphabet = "".join(t for t in self.source.tokens if len(t) == 1)
                raise DataError(
                    f"unknown character {character!r} in lemma {lemma!r}: expected characters that "
                    f"occur in the training data, {alphabet!r}"
                )
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
        best: int | None = 1,
        budget: int = 1000,
        progress: bool = False,
    ) -> list[SearchResult]:
        """The result of a search for each example, in their order; options as for `inflect`."""
        options = {"beam": beam} if search == "beam" else {"n_best": best, "budget": budget}
        decode = _search(search)
        pairs = self.pairs(examples)
        results: dict[int, SearchResult] = {}
        with counting(len(pairs), "word", progress) as advance:
            for index in bucketed_batches(pairs, batch_size):
                batch = make_batch(pairs, index)
                found = decode(
                    self.model, batch.source, batch.source_mask, keep_attention=False, **options
                )
                results |= {int(i): result for i, result in zip(index, found, strict=True)}
                advance(len(batch))
        return [results[i] for i in range(len(pairs))]


def _search(name: str) -> Callable[..., list[SearchResult]]:
    searches: dict[str, Callable[..., list[SearchResult]]]
    searches = {"beam": beam_search, "exact": exact_search}
    if name not in searches:
        raise ValueError(f"search: expected 'beam' or 'exact', got {name!r}")
    return searches[name]


class Inflector(WordDecoder):
    """A sequence-to-sequence model with the vocabularies that make it a model of words.

    Parameters
    ----------
    model : RNNSeq2Seq
    source, target : Vocabulary
        Of tags and characters, and of the characters of forms.

    Examples
    --------
    >>> import numpy as np
    >>> from pyentmax.data import Example
    >>> verbs = [Example("play", "played", ("V", "PST")), Example("walk", "walked", ("V", "PST"))]
    >>> inflector = Inflector.untrained(verbs, np.random.default_rng(0), hidden=8)
    >>> len(inflector.source), len(inflector.target)
    (12, 12)
    """

    model: RNNSeq2Seq

    def __init__(self, model: RNNSeq2Seq, source: Vocabulary, target: Vocabulary) -> None:
        super().__init__(model, source, target)

    @classmethod
    def untrained(
        cls, examples: Sequence[Example], rng: np.random.Generator, **config: Any
    ) -> Inflector:
        """A model with random parameters, and vocabularies of what occurs in the examples.

        ``config`` holds the fields of :class:`RNNSeq2SeqConfig` but for the two sizes.
        """
        source = Vocabulary.build(source_tokens(example) for example in examples)
        target = Vocabulary.build(target_tokens(example.form) for example in examples)
        shape = RNNSeq2SeqConfig(source_size=len(source), target_size=len(target), **config)
        model = RNNSeq2Seq.initialize(shape, rng, bos=BOS, eos=EOS)
        return cls(model, source, target)

    # --- training ---------------------------------------------------------------------------------
    def validate(self, examples: Sequence[Example], batch_size: int = 128) -> Validation:
        """Mean loss a token and share of forms that greedy search gets entirely right."""
        pairs = self.pairs(examples)
        loss: Any = 0.0
        tokens = right = 0.0
        for index in bucketed_batches(pairs, batch_size):
            batch = make_batch(pairs, index)
            mean = self.model.loss(self.model.params, batch)
            count = float(batch.target_mask.sum())
            loss = loss + count * mean.data.astype(np.float64)
            tokens += count
            greedy = greedy_search(self.model, batch.source, batch.source_mask)
            for i, found in zip(index, greedy, strict=True):
                # Compared as strings: a form with an unknown character is never right.
                right += self.form(found) == examples[i].form
        return Validation(float(loss) / tokens, right / len(pairs))

    # --- files ------------------------------------------------------------------------------------
    def description(self) -> dict[str, Any]:
        """What, besides the parameters, makes the model: configuration and vocabularies.

        Options that early checkpoints do not know are there only where they are used, so that
        such a run is still recognised and can go on.
        """
        config = asdict(self.model.config)
        for name, unused in LATER_OPTIONS.items():
            if config[name] == unused:
                del config[name]
        return {
            "config": config,
            "source": self.source.to_json(),
            "target": self.target.to_json(),
        }

    def save(self, path: str | Path) -> None:
        """Write the model with its vocabularies to one ``.npz``, as `save_checkpoint` does."""
        save_checkpoint(path, self.model.params, {"kind": KIND, **self.description()})

    @classmethod
    def load(cls, path: str | Path) -> Inflector:
        """Read what :meth:`save` wrote: a file, or the folder of a run with a ``best.npz``."""
        path = Path(path)
        if path.is_dir():
            if not (path / BEST).exists() and (path / LAST).exists():
                raise FileNotFoundError(
                    f"no {BEST} in {path} yet: it is written at the first validation; go on with "
                    "the same training command and --resume"
                )
            path = path / BEST
        params, meta = load_checkpoint(path, KIND)
        try:
            source = Vocabulary.from_json(meta["source"])
            target = Vocabulary.from_json(meta["target"])
            model = RNNSeq2Seq(RNNSeq2SeqConfig(**meta["config"]), params, BOS, EOS)
            model.check_parameters()
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: parts are missing or do not fit together ({error}); was it written by "
                "another version?"
            ) from error
        return cls(model, source, target)


def load_word_decoder(paths: Sequence[str | Path]) -> WordDecoder:
    """The model of one checkpoint, or the ensemble of several, which need the same vocabularies.

    Parameters
    ----------
    paths : sequence of paths
        As for :meth:`Inflector.load`.

    Raises
    ------
    CheckpointError
        If a file is broken, or two models do not know the same characters, tags and languages in
        the same order, as models trained on the same examples do.
    ValueError
        If there is no path.
    """
    loaded = [Inflector.load(path) for path in paths]
    if len(loaded) == 1:
        return loaded[0]
    ensemble = Ensemble([inflector.model for inflector in loaded])
    first = loaded[0]
    for path, other in zip(paths, loaded, strict=True):
        for name in ("source", "target"):
            ours, theirs = (set(getattr(x, name).tokens) for x in (first, other))
            if getattr(first, name) != getattr(other, name):
                differ = " ".join(sorted(ours ^ theirs)) or "the order"
                raise CheckpointError(
                    f"{path}: its {name} vocabulary is not that of {paths[0]} ({differ}): expected "
                    "models trained on the same examples, to average their probabilities"
                )
    return WordDecoder(ensemble, first.source, first.target)


def train_inflector(
    examples: Sequence[Example],
    dev: Sequence[Example],
    config: TrainingConfig,
    *,
    directory: str | Path | None = None,
    keep: str = "best",
    resume: bool = False,
    progress: bool = True,
    purpose: str = "train",
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    **model: Any,
) -> tuple[Inflector, History]:
    """Train a model of inflection; ``model`` holds the fields of :class:`RNNSeq2SeqConfig`.

    The seed in ``config`` fixes the initial parameters too. ``purpose`` goes into ``last.npz``, to
    tell runs apart. ``device`` is "cpu", or "cuda" for a GPU: an ImportError or ValueError says
    what is missing for that. The checkpoints are the same. See :func:`pyentmax.training.train` for
    the rest.
    """
    xp = device_module(device)
    inflector = Inflector.untrained(examples, np.random.default_rng(config.seed), **model)
    inflector.model.move_to(xp)
    identity = {
        "purpose": purpose,
        **inflector.description(),
        "dev": fingerprint(inflector.pairs(dev)),
    }
    history = train(
        inflector.model,
        inflector.pairs(examples),
        config,
        lambda _: inflector.validate(dev),
        directory=directory,
        save_best=inflector.save,
        keep=keep,
        identity=identity,
        resume=resume,
        progress=progress,
        clock=clock,
    )
    return inflector, history
