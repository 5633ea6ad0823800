"""The commands of translation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyentmax.data import DataError, Vocabulary
from pyentmax.tasks import command_line, reports
from pyentmax.tasks.analyse import Analysis
from pyentmax.tasks.command_line import Commands
from pyentmax.tasks.text_files import decode
from pyentmax.tasks.translation import head_pictures, heads
from pyentmax.tasks.translation.configuration import (
    BUNDLED,
    read_config,
    read_corpus,
    read_experiment,
)
from pyentmax.tasks.translation.demo import run_demo
from pyentmax.tasks.translation.parallel import SentencePair, read_multi30k
from pyentmax.tasks.translation.translator import Translator, train_translator
from pyentmax.training import TrainingConfig, counting

N_NAMED = 20  # unknown words that are named


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
        description="Translate sentences, given here or one per line of standard input: the best "
        "translation of each on a line of its own. With --list, every one that the search finds, "
        "as a tree with its probabilities, and whether that is all there are. With --force, what "
        "it finds possible at each step of a given translation (Peters et al. 2019, Figure 2).",
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="best.npz, or the folder of a run")
    # At least one: an optional list would be taken as empty where an option comes before it.
    add("sentences", nargs="+", metavar="SENTENCE", help="in quotes; or - for standard input")
    add(
        "--ensemble",
        action="append",
        type=Path,
        default=[],
        metavar="MODEL",
        help="one more, whose probabilities are averaged with the first one's; may be repeated",
    )
    add("--list", action="store_true", help="all translations, with probabilities")
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
    given = {"seed": args.seed, "updates": args.updates}
    settings = experiment.training | {k: v for k, v in given.items() if v is not None}
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
    command_line.expect(args, "best budget search", args.list, "--list with it")
    command_line.expect(args, "pictures", not one, "--list or --force with it")
    command_line.expect(args, "list beam", not forced, "without --force, where it has no effect")
    command_line.expect(args, "whole", one, "without --list and --force, which always compare so")
    options = command_line.search_options(args)
    translator = Translator.load_ensemble([args.model, *args.ensemble])
    sentences = args.sentences
    if sentences == ["-"]:
        text = decode(sys.stdin.buffer.read(), "standard input")
        sentences = text.removesuffix("\n").split("\n") if text else []
    if forced and len(sentences) != 1:
        raise ValueError(f"--force: expected one sentence, got {len(sentences)}")
    sources = [translator.segmenter.split(sentence) for sentence in sentences]
    for number, (sentence, source) in enumerate(zip(sentences, sources, strict=True), start=1):
        if not source:  # said before anything is computed
            raise DataError(f"sentence {number}: expected at least one word, got {sentence!r}")
    _note_unknown(sources, translator.source)
    if forced:
        _note_unknown([translator.target_segmenter.split(args.force)], translator.target)
        decoding = translator.force(sentences[0], args.force)
        reports.show(translator, sentences[0], sources[0], decoding, args.pictures, "1")
        return
    progress = not args.quiet and not sys.stdout.isatty()  # a screen shows the translations
    if one:
        options |= {"normalize": not args.whole, "progress": progress}
        for translation in translator.translate_all(sentences, **options):
            print(command_line.printable(translation), flush=True)
        return
    width, options["keep_attention"] = len(str(len(sentences))), args.pictures is not None
    with counting(len(sentences), "sentence", progress) as advance:
        for number, (sentence, source) in enumerate(zip(sentences, sources, strict=True), start=1):
            found = translator.translate(sentence, **options)
            place = (args.pictures, f"{number:0{width}}")
            reports.show(translator, sentence, source, found, *place, graph=True)
            print(flush=True)
            advance(1)


def _note_unknown(sentences: Sequence[Sequence[str]], known: Vocabulary) -> None:
    """Name the words that become ``<unk>``, on standard error."""
    unknown = list(dict.fromkeys(t for tokens in sentences for t in tokens if t not in known))
    if unknown:
        named = " ".join(unknown[:N_NAMED]) + " …" * (len(unknown) > N_NAMED)
        note = f"note: words that the model does not know: {named}"
        print(command_line.printable(note), file=sys.stderr)


class HeadAnalysis(Analysis):
    """`analyse` of Transformers that translate: their heads, side by side."""

    kind = Translator.kind
    description = (
        "Of Transformers that translate, put side by side, what their heads do (Correia et al. "
        "2019, §5): densities, diversity, positional heads, heads that join the pieces of words, "
        "heads that look for a mark, learned α. DATA is a file of source TAB target, two files of "
        "parallel text, the bundled corpus toy-german, or a folder with "
        "Multi30k, whose dev pairs are read. Name the softmax model first."
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what only Transformers have."""
        add = parser.add_argument_group("heads of Transformers").add_argument
        add("--reverse", action="store_true", help="swap source and target of the data")
        add(
            "--looking",
            nargs="+",
            metavar="WORD",
            default=heads.QUESTION_WORDS,
            help="source tokens whose weight on the marks is measured; interrogatives if not given",
        )
        add("--marks", nargs="+", metavar="WORD", default=heads.MARKS, help="the question mark")
        add(
            "--k",
            nargs="+",
            metavar="K",
            default=(),
            help="tokens right if heads keep K weights in use; a number or 'all'",
        )
        add("--translate", type=int, default=0, metavar="N", help="and BLEU of N sentences, greedy")

    def measure(self, args: argparse.Namespace) -> tuple[str, Callable[[Path], list[Path]]]:
        """Tables of all models, side by side."""
        for k in args.k:
            if k != "all" and not (k.isdecimal() and int(k) > 0):
                raise ValueError(f"--k: expected numbers from 1 up, or 'all', got {k!r}")
        if args.translate < 0:
            raise ValueError(f"--translate: expected a number of sentences, got {args.translate}")
        pairs = read_pairs(args.examples, reverse=args.reverse)[: args.first]
        words = {"looking": set(args.looking), "marks": set(args.marks)}
        progress = not args.quiet
        found = heads.measure(
            args.models, pairs, **words, ks=args.k, translated=args.translate, progress=progress
        )

        def write(out: Path) -> list[Path]:
            return [heads.write(found, out), *head_pictures.draw(found, pairs, out, **words)]

        return heads.describe(found), write


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
