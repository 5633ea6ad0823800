"""Table 5, Figure 3: the k largest weights in training (T), or in use too (T&P; Zhao et al. 2019).

Reads trained Transformers with other k than they were trained with. (Choice of k in training: rows
of `zhao2019/table4.py`; the language model's by `own/language_model.py`.)

What came out (3,200 updates, German to English, 400 dev pairs): trained with top-8, 58.3% of the
tokens are right with k = 8 in use and 58.0% with all. T is behind T&P, as in the paper: by 0.015
nats a token with k = 4 (95%: 0.008 to 0.022), 0.008 with 8, 0.004 with 16, most of it in the
encoder; after 400 updates it was not. Softmax, which the paper has below both, is not behind. A
minute, two with `--by-layer`.

    python -m experiments.zhao2019.table5 --out runs/zhao2019/table4 --data FOLDER

With ``--seed 0 1 2`` the table ends with the highest of the three, which is what the paper reports
for its small corpora (A.2).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from experiments.analysis import PerSentence
from experiments.bootstrap import bootstrap_difference
from experiments.correia2019 import heads as measured
from experiments.correia2019 import measured_heads as heads
from experiments.correia2019.head_plots import plot_choice_of_k
from experiments.runner import Experiment, Line, Options, Settings
from experiments.tables import markdown
from experiments.tasks.translation import SentencePair, Translator
from experiments.translation import paired_bootstrap, read_data
from pyentmax import softmax
from pyentmax.seq2seq.data import Pair, bucketed_batches, make_batch
from pyentmax.seq2seq.models.stack import StackModel
from pyentmax.seq2seq.models.transformer import KINDS
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping
from pyentmax.seq2seq.plotting import save_figure


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add this script's options."""
    measured.add_options(parser)
    add = parser.add_argument
    add("--k", nargs="+", default=["1", "2", "4", "8", "all"], help="weights kept in use, or all")
    add("--translate", type=int, default=200, metavar="N", help="sentences for BLEU, greedy search")
    add("--by-layer", action="store_true", help="what dense use costs in each layer alone")
    parser.set_defaults(row=["transformer-1", "transformer-top8"], first=400)


def runs(args: argparse.Namespace) -> list[list[Settings]]:
    """A comparison for each seed."""
    more = {"k": args.k, "translate": args.translate}
    more |= {"by_layer": True} if args.by_layer else {}
    return [[{**settings, **more} for settings in measured.runs(args)[0]]]


def work(settings: Settings, folder: Path, options: Options) -> dict[str, Any]:
    """Loss, share of right tokens and BLEU of each model with each k in use."""
    pairs = read_data(options, settings["direction"]).dev[: settings["first"]]
    result: dict[str, Any] = {}
    for path in measured.trained(settings, folder):
        translator = Translator.load(path)
        encoded = translator.pairs(pairs)
        name = heads.attention_label(translator.model.config)
        result[name] = {
            k: heads.use_with_k(translator, k, pairs, encoded, settings["translate"])
            for k in settings["k"]
        }
        attention = translator.model.config.attention
        if settings.get("by_layer") and attention != "1":
            result[name]["dense"] = dense_by_layer(translator, encoded)
        if settings["translate"] and attention.startswith("topk_softmax:"):
            trained_k = attention.removeprefix("topk_softmax:")
            some = pairs[: settings["translate"]]
            result[name]["T&P minus T"] = bleu_difference(translator, trained_k, some)
    return result


def bleu_difference(
    translator: Translator, k: str, pairs: Sequence[SentencePair]
) -> dict[str, float]:
    """BLEU by greedy search with k weights in use minus that with all, and its 95% interval."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    kept, dense = (
        list(heads.keeping(translator, each).translate_all(sources, beam=1)) for each in (k, "all")
    )
    difference, low, high = paired_bootstrap(kept, dense, references)
    return {"difference": round(difference, 2), "low": round(low, 2), "high": round(high, 2)}


def dense_by_layer(translator: Translator, pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """What softmax over all positions costs a model that was trained sparse, by kind and layer.

    One kind of one layer is dense and all others as they were trained, then all are dense. The loss
    is that of forced decoding in nats per token, minus the loss as trained, with a 95% interval by
    bootstrap over the sentences; ``outside`` is the weight that leaves the trained support.
    """
    places = [(kind, layer) for kind in KINDS for layer in range(translator.model.config.layers)]
    trained, outside = sentence_losses(translator, pairs), weight_outside(translator, pairs)
    found = {}
    for name, dense in {**{f"{k} {n + 1}": [(k, n)] for k, n in places}, "all": places}.items():
        with dense_in(dense):
            gap = bootstrap_difference(sentence_losses(translator, pairs), trained)
        found[name] = {x: round(float(v), 4) for x, v in gap._asdict().items()}
        found[name]["outside"] = round(float(np.mean([outside[place] for place in dense])), 4)
    return found


@contextmanager
def dense_in(places: Sequence[tuple[str, int]]) -> Iterator[None]:
    """Softmax over all positions in these kinds and layers, where models are used meanwhile."""
    trained = StackModel.mapping

    def mapping(self: StackModel, kind: str, layer: int, *args: Any) -> Any:
        dense = (kind, layer) in places
        return choose_mapping("softmax") if dense else trained(self, kind, layer, *args)

    with patch.object(StackModel, "mapping", mapping):
        yield


def sentence_losses(translator: Translator, pairs: Sequence[Pair]) -> PerSentence:
    """Nats per token of each sentence, by forced decoding of a model with a softmax output."""
    model, means, counts = translator.model, np.zeros(len(pairs)), np.zeros(len(pairs))
    for index in bucketed_batches(pairs, 64):
        batch = make_batch(pairs, index)
        scores = model.scores(model.params, batch.source, batch.source_mask, batch.target_in)
        log_p = softmax.log(scores.data)
        chosen = np.take_along_axis(log_p, batch.target_out[..., None], axis=-1)[..., 0]
        counts[index] = batch.target_mask.sum(axis=1)
        means[index] = -(chosen * batch.target_mask).sum(axis=1) / counts[index]
    return PerSentence(means, counts)


def weight_outside(translator: Translator, pairs: Sequence[Pair]) -> dict[tuple[str, int], float]:
    """By kind and layer: the weight that dense use of that layer alone puts outside the support."""
    model, sums = translator.model, dict[tuple[str, int], list[float]]()
    for index in bucketed_batches(pairs, 64):
        batch = make_batch(pairs, index)
        inputs = (batch.source, batch.source_mask, batch.target_in)
        sparse = model.attention_weights(*inputs)
        queries = dict.fromkeys(KINDS, batch.target_mask) | {"encoder": batch.source_mask}
        for kind in KINDS:
            for layer in range(model.config.layers):
                with dense_in([(kind, layer)]):  # its scores are those of the sparse model
                    dense = model.attention_weights(*inputs)[kind][layer]
                gone = (dense * (sparse[kind][layer] == 0)).sum(axis=-1).mean(axis=1)
                total = sums.setdefault((kind, layer), [0.0, 0.0])
                total[0] += float(gone[queries[kind]].sum())
                total[1] += float(queries[kind].sum())
    return {place: total / count for place, (total, count) in sums.items()}


def _right_and_bleu(found: dict[str, float]) -> str:
    bleu = f" / {found['bleu']:.1f}" if "bleu" in found else ""
    return f"{100 * found['accuracy']:.1f}%{bleu}"


def report(lines: list[Line]) -> str:
    """Tokens right and BLEU, a row for each model."""
    parts = []
    for line in lines:
        ks = line["settings"]["k"]
        rows = [[name, *(_right_and_bleu(x[k]) for k in ks)] for name, x in line["result"].items()]
        parts.append(markdown(["trained with", *(f"k = {k}" for k in ks)], rows))
        for name, x in line["result"].items():
            if gap := x.get("T&P minus T"):
                parts.append(
                    f"{name}, BLEU of T&P minus T: {gap['difference']:+.1f} "
                    f"({gap['low']:+.1f} to {gap['high']:+.1f}; 95%, sentences)"
                )
        if dense := {name: x["dense"] for name, x in line["result"].items() if "dense" in x}:
            rows = [
                [
                    place,
                    *(
                        f"{x['difference']:+.3f} ({x['low']:+.3f} to {x['high']:+.3f}); "
                        f"{100 * x['outside']:.1f}%"
                        for x in (by_place[place] for by_place in dense.values())
                    ),
                ]
                for place in next(iter(dense.values()))
            ]
            parts.append("Nats per token if dense there in use (95%), and weight outside the k:")
            parts.append(markdown(["dense in", *dense], rows))
    return "\n\n".join(parts + highest(lines))


def highest(lines: list[Line]) -> list[str]:
    """Tables of the highest of several seeds, for those that differ in nothing else."""
    by_rest: dict[str, list[Line]] = {}
    for line in lines:
        rest = {name: x for name, x in line["settings"].items() if name != "seed"}
        by_rest.setdefault(repr(rest), []).append(line)
    parts = []
    for group in by_rest.values():
        if len(group) > 1:
            ks, results = group[0]["settings"]["k"], [line["result"] for line in group]
            shown = ("accuracy", "bleu") if group[0]["settings"]["translate"] else ("accuracy",)
            best = {
                name: {k: {x: max(r[name][k][x] for r in results) for x in shown} for k in ks}
                for name in results[0]
            }
            rows = [[name, *(_right_and_bleu(x[k]) for k in ks)] for name, x in best.items()]
            parts.append(f"The highest of {len(group)} seeds:")
            parts.append(markdown(["trained with", *(f"k = {k}" for k in ks)], rows))
    return parts


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Draw tokens right against k."""
    by_k = {
        name: {k: 100 * x[k]["accuracy"] for k in lines[0]["settings"]["k"]}
        for name, x in lines[0]["result"].items()
    }
    return [save_figure(plot_choice_of_k(by_k, "tokens right, %"), folder / "table5.png")]


EXPERIMENT = Experiment("zhao2019/table5", __doc__, runs, work, report, draw, add_options)
main = EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
