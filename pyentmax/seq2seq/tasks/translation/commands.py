"""The commands of translation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyentmax.seq2seq.data import DataError, Vocabulary
from pyentmax.seq2seq.decoding import Hypothesis, SearchResult
from pyentmax.seq2seq.tasks import command_line, reports
from pyentmax.seq2seq.tasks.analyse import Analysis
from pyentmax.seq2seq.tasks.command_line import Commands, user_path
from pyentmax.seq2seq.tasks.lines import (
    FORMATS,
    N_NAMED,
    Line,
    Notes,
    Results,
    blocks_from,
    is_input,
    result,
)
from pyentmax.seq2seq.tasks.translation import heads
from pyentmax.seq2seq.tasks.translation.configuration import (
    BUNDLED,
    read_config,
    read_corpus,
    read_experiment,
)
from pyentmax.seq2seq.tasks.translation.demo import run_demo
from pyentmax.seq2seq.tasks.translation.parallel import SentencePair, read_multi30k
from pyentmax.seq2seq.tasks.translation.translator import (
    Translator,
    ranked,
    score,
    train_translator,
)
from pyentmax.seq2seq.training import TrainingConfig, counting


def add_commands(commands: Commands) -> None:
    """Add all of them, in the order in which the help text lists them."""
    parser = commands.add(
        "demo-translation",
        run=lambda args: run_demo(args.out, args.seed, args.device),
        help="train on toy German; list every translation of a sentence",
    )
    parser.add_demonstration("pyentmax-translation")

    for architecture, help, config in (
        ("rnn", "a recurrent model of translation", "RNNSeq2SeqConfig"),
        ("transformer", "a Transformer of translation", "TransformerConfig"),
    ):
        parser = commands.add(
            f"train {architecture}",
            run=_train,
            help=help,
            description="Train a model of translation with the settings of a TOML file. [data] has "
            "train and dev, unless the options give them; subwords, a number or a sentencepiece "
            "model (words without it), and of learned ones algorithm (unigram or bpe) and separate "
            "(a vocabulary for each side); tokens or batch_size. [model] and [training] hold the "
            f"fields of {config} and TrainingConfig. Writes DIR/best.npz, the model with the most "
            "tokens right on dev, and DIR/last.npz, from which --resume continues.",
        )
        parser.add_data(
            "two files of parallel text, or one with source TAB target, or 'toy-german', which is "
            "bundled; instead of the configuration's",
            "the same, to validate on",
        )
        add = parser.add_argument
        bundled = f"toy-{architecture}"
        add("--config", default=bundled, metavar="FILE", help="settings: a file, or a bundled name")
        add("--print-config", action="store_true", help="print the settings to edit, and stop")
        add("--seed", type=int, help="instead of the configuration's")
        add("--updates", type=int, help="instead of the configuration's")
        parser.add_run("runs/translation")

    parser = commands.add(
        "translate",
        run=_translate,
        help="sentences, or every translation that a model finds possible",
        description="Translate sentences, given here or one per line of a file or a pipe: the best "
        "translation of each on a line of its own, an empty one for an empty line; a process "
        "that waits for each answer gets it. With --list, every one that the search finds, "
        "as a tree with its probabilities, and whether that is all there are. With --force, what "
        "it finds possible at each step of a given translation (Peters et al. 2019, Figure 2).",
    )
    add = parser.add_argument
    add("model", type=user_path, metavar="MODEL", help="best.npz, or the folder of a run")
    # At least one: an optional list would be taken as empty where an option comes before it.
    add("sentences", nargs="+", metavar="SENTENCE", help="in quotes; or a file, or -")
    add(
        "--ensemble",
        action="append",
        type=user_path,
        default=[],
        metavar="MODEL",
        help="one more, whose probabilities are averaged with the first one's; may be repeated",
    )
    add("--list", action="store_true", help="all translations, with probabilities")
    parser.add_lines(FORMATS)
    parser.add_search()
    add("--whole", action="store_true", help="compare by the probability of the whole, not by mean")
    add("--force", metavar="TRANSLATION", help="of the one sentence: feed it, step by step")
    parser.add_pictures(
        "with --list or --force: draw tree or steps there, and the attention; numbered"
    )
    parser.add_quiet()


def _train(args: argparse.Namespace) -> None:
    if args.print_config:
        print(read_config(args.config)[0], end="")
        return
    command_line.expect(args, "train", args.dev is not None, "--dev with it")
    command_line.expect(args, "dev", args.train is not None, "--train with it")
    options = command_line.run_options(args)
    experiment = read_experiment(args.config, args.model, train=args.train, dev=args.dev)
    overrides = {"seed": args.seed, "updates": args.updates}
    settings = experiment.training | {k: v for k, v in overrides.items() if v is not None}
    try:
        training = TrainingConfig(**settings)
    except ValueError as error:
        raise ValueError(f"{args.config}, [training] or an option: {error}") from error
    train, dev = experiment.pairs()
    _, history = train_translator(
        args.model,
        train,
        dev,
        training,
        options,
        device=args.device,
        **experiment.segmenters(train),
        **experiment.batches(),
        **experiment.model,
    )
    command_line.check_finished(args, history)
    accuracy = f"best dev accuracy {100 * history.best_accuracy:.1f}% of the tokens"
    command_line.report_training(args, history, accuracy)


def _translate(args: argparse.Namespace) -> None:
    forced, one = args.force is not None, not args.list and args.force is None
    if "-" in args.sentences and len(args.sentences) > 1:
        raise ValueError("sentences: expected - for standard input alone, got more sentences")
    several = args.list or (one and (args.format is not None or args.best is not None))
    command_line.expect(args, "budget search", several, "--list, --format or --n-best with it")
    command_line.expect(args, "pictures", not one, "--list or --force with it")
    without = "without --force, where it has no effect"
    searching = "list beam best keep format min_length no_repeat_ngram"
    command_line.expect(args, searching, not forced, without)
    command_line.expect(args, "format", one, "without --list")
    command_line.expect(args, "whole", one, "without --list and --force, which always compare so")
    on_lines = len(args.sentences) == 1 and is_input(args.sentences[0])
    command_line.expect(args, "strict", on_lines, "a file or -")
    options = command_line.search_options(args)
    translator = Translator.load_ensemble([args.model, *args.ensemble])
    if on_lines and not forced:
        with blocks_from(args.sentences[0]) as blocks:
            _translate_blocks(args, translator, blocks, None, options)
        return
    sentences = args.sentences
    if forced and len(sentences) != 1:
        raise ValueError(f"--force: expected one sentence, got {len(sentences)}")
    sources = [translator.segmenter.split(sentence) for sentence in sentences]
    for number, (sentence, source) in enumerate(zip(sentences, sources, strict=True), start=1):
        if not source:  # said before anything is computed
            raise DataError(f"sentence {number}: expected at least one word, got {sentence!r}")
    if forced:
        _note_unknown(sources, translator.source, set())
        _note_unknown([translator.target_segmenter.split(args.force)], translator.target, set())
        decoding = translator.force(sentences[0], args.force)
        reports.show(translator, sentences[0], sources[0], decoding, args.pictures, "1")
        return
    lines = [Line(f"sentence {n}", sentence) for n, sentence in enumerate(sentences, start=1)]
    _translate_blocks(args, translator, [lines], len(lines), options)


def _translate_blocks(
    args: argparse.Namespace,
    translator: Translator,
    blocks: Iterable[list[Line]],
    total: int | None,
    options: dict[str, Any],
) -> None:
    """Translate lines as they come; their number is not known in advance where they are read."""
    results, notes, normalize = Results(args.format), Notes(args.strict), not args.whole
    if args.list:
        options["keep_attention"] = args.pictures is not None
    else:
        options["normalize"] = normalize
        if args.format is None:
            options["n_best"] = args.best or 1
            if args.best is None:
                options["prove"] = False
        if args.search != "exact":
            options.setdefault("beam", max(5, args.best or 0))
    progress = not args.quiet and not sys.stdout.isatty()  # a screen shows the translations
    number, unknown, with_unknown, cut = 0, set[str](), 0, 0
    with counting(total, "sentence", progress) as advance:
        for block in blocks:
            sources = [translator.segmenter.split(line.text) for line in block]
            with_unknown += _note_unknown(sources, translator.source, unknown)
            texts = [line.text for line, source in zip(block, sources, strict=True) if source]
            searches: Iterator[SearchResult]
            if args.list:
                searches = (translator.translate(text, **options) for text in texts)
            else:
                searches = translator.search_all(texts, **options)
            for line, source in zip(block, sources, strict=True):
                number += 1
                advance(1)
                if line.error:
                    notes.wrong(line.error)
                elif not source:
                    notes.good += 1
                if not source:
                    results.write([""], {})
                    continue
                notes.good += 1
                searched = next(searches)
                if args.list:
                    place = (args.pictures, f"{number:0{len(str(total or ''))}}")
                    reports.show(translator, line.text, source, searched, *place)
                    print()
                else:
                    best = ranked(searched, normalize)[: args.best]
                    cut += not best[0].finished
                    record = _record(translator, searched, best, normalize)
                    rows = [r["text"] for r in record["results"]][: args.best or 1]
                    results.write(rows, {"source": line.text} | record)
            results.flush()
    results.finish()
    if total is None:
        if with_unknown:
            what = "sentences have words that the model does not know"
            notes.say(f"{with_unknown} of {number} {what}")
        if cut:
            notes.say(f"{cut} of {number} translations end at the limit of their length")
        notes.finish()


def _record(
    translator: Translator, search: SearchResult, best: Sequence[Hypothesis], normalize: bool
) -> dict[str, Any]:
    """The translations for `Results`."""
    texts = [result(translator.sentence(h.tokens), h.log_prob, score(h, normalize)) for h in best]
    return {"results": texts, "complete": search.exact and len(best) == len(search.hypotheses)}


def _note_unknown(sentences: Sequence[Sequence[str]], known: Vocabulary, named: set[str]) -> int:
    """Name the words that become ``<unk>``, on standard error, once; return how many sentences."""
    unknown = [[token for token in tokens if token not in known] for tokens in sentences]
    new = list(dict.fromkeys(t for tokens in unknown for t in tokens if t not in named))
    if new and len(named) < N_NAMED:
        words = " ".join(new[:N_NAMED]) + " …" * (len(new) > N_NAMED)
        note = f"note: words that the model does not know: {words}"
        print(command_line.printable(note, keep=""), file=sys.stderr, flush=True)
    named.update(new)
    return sum(map(bool, unknown))


class HeadAnalysis(Analysis):
    """`analyse` of Transformers that translate: their heads, side by side."""

    kind = Translator.kind
    description = (
        "Of Transformers that translate, put side by side, what their heads do (Correia et al. "
        "2019, §5): densities, diversity, positional heads, learned α. DATA is a file of source "
        "TAB target, two files of parallel text, the bundled corpus toy-german, or a folder with "
        "Multi30k, whose dev pairs are read."
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what only Transformers have."""
        add = parser.add_argument_group("heads of Transformers").add_argument
        add("--reverse", action="store_true", help="swap source and target of the data")

    def measure(self, args: argparse.Namespace) -> tuple[str, Callable[[Path], list[Path]]]:
        """A table of all models, side by side."""
        pairs = read_pairs(args.examples, reverse=args.reverse)[: args.first]
        numbers = heads.measure(args.models, pairs, progress=not args.quiet)
        return heads.describe(numbers), lambda out: heads.write(numbers, out)


def read_pairs(data: Sequence[Path], *, reverse: bool = False) -> list[SentencePair]:
    """The sentence pairs that DATA names.

    Parameters
    ----------
    data : sequence of one or two paths
        A table, two files of parallel text, the name of a bundled corpus (its held-out pairs), or a
        folder with Multi30k (its dev pairs).
    reverse : bool
        Whether source and target are swapped.

    Raises
    ------
    ValueError
        If there are more than two.
    """
    if len(data) > 2:
        raise ValueError(f"examples: expected one or two files of translation, got {len(data)}")
    if data[0].is_dir() and str(data[0]) not in BUNDLED:
        return read_multi30k(data[0], reverse=reverse).dev
    pairs = read_corpus(data, 1)
    return [SentencePair(pair.target, pair.source) for pair in pairs] if reverse else pairs
