"""Make the models of docs/draw.md and docs/never.md: ``python tools/make_browser_model.py``.

Trains the demonstration's network twice, with a 1.5-entmax and with a softmax output, in a minute.
Writes ``verbs-sparse.js`` and ``verbs-softmax.js``: weights in float16 as base64, since a page that
is opened as a file can load scripts only. Tokens are only looked up, so each embedding is
multiplied by the weights that read it: one row of gates per token.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pyentmax.seq2seq.data import BOS, EOS, Vocabulary
from pyentmax.seq2seq.inflection import Example, Inflector, train_inflector
from pyentmax.seq2seq.inflection.demo import DROPOUT, RATE, UPDATES, demo_split
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.training import TrainingConfig

FOLDER = Path(__file__).parents[1] / "docs" / "_static" / "play"
OUTPUTS = {"sparse": "1.5", "softmax": "softmax"}

Arrays: TypeAlias = dict[str, np.ndarray]


def trained(output: str, seed: int) -> Inflector:
    """The model of the demonstration, with this output."""
    train, dev, _ = demo_split(seed)
    config = TrainingConfig(updates=UPDATES, rate=RATE, seed=seed, validate_every=UPDATES // 4)
    model = {"hidden": 128, "dropout": DROPOUT, "output": output}
    return train_inflector(train, dev, config, **model)[0]


def folded(params: Arrays) -> Arrays:
    """The matrices of verbs.js: embeddings multiplied in, and two that have one input joined."""
    p = {name: np.asarray(x, np.float64) for name, x in params.items()}

    def gates(embedding: str, reader: str) -> np.ndarray:
        table: np.ndarray = p[f"{embedding}.weight"] @ p[f"{reader}.weight"] + p[f"{reader}.bias"]
        return table

    return {
        "forward.gates": gates("source_embedding", "encoder.0.forward"),
        "backward.gates": gates("source_embedding", "encoder.0.backward"),
        "decoder.gates": gates("target_embedding", "decoder.0"),
        "forward.recurrent": p["encoder.0.forward.recurrent"],
        "backward.recurrent": p["encoder.0.backward.recurrent"],
        "decoder.joint": np.concatenate([p["decoder.feed.weight"], p["decoder.0.recurrent"]]),
        "attention": p["attention.weight"],
        "combine": p["combine.weight"],
        "output": p["output.weight"],
        "output.bias": p["output.bias"][None],
    }


def unfolded(arrays: Arrays) -> Arrays:
    """The parameters in float64 of a model that has these matrices: embeddings are one-hot."""
    hidden = len(arrays["attention"])
    feed, recurrent = np.split(arrays["decoder.joint"], 2)
    params = {
        "source_embedding.weight": np.eye(len(arrays["forward.gates"]), hidden),
        "target_embedding.weight": np.eye(len(arrays["decoder.gates"]), hidden),
        "decoder.feed.weight": feed,
        "decoder.0.recurrent": recurrent,
        "encoder.0.forward.recurrent": arrays["forward.recurrent"],
        "encoder.0.backward.recurrent": arrays["backward.recurrent"],
        "attention.weight": arrays["attention"],
        "combine.weight": arrays["combine"],
        "output.weight": arrays["output"],
        "output.bias": arrays["output.bias"][0],
    }
    readers = {"forward": "encoder.0.forward", "backward": "encoder.0.backward"}
    for name, reader in (readers | {"decoder": "decoder.0"}).items():
        table = arrays[f"{name}.gates"]
        params[f"{reader}.weight"] = np.pad(table, ((0, hidden - len(table)), (0, 0)))
        params[f"{reader}.bias"] = np.zeros(table.shape[1])
    return params


def exact(arrays: Arrays, description: dict[str, Any]) -> Inflector:
    """The library's model of these matrices, in float64."""
    source, target = (Vocabulary(tuple(description[name])) for name in ("source", "target"))
    hidden, output = len(arrays["attention"]), description["output"]
    config = RNNSeq2SeqConfig(len(source), len(target), hidden=hidden, output=output)
    model = RNNSeq2Seq(config, unfolded(arrays), BOS, EOS)
    return Inflector(model, source, target, description["tags"], description["bundles"])


def read(path: Path) -> tuple[Inflector, dict[str, Any]]:
    """The library's model with the weights of such a file, and what else the file has."""
    description = json.loads(path.read_text("utf-8").rpartition(" = ")[2].rstrip(";\n"))
    numbers = np.frombuffer(base64.b64decode(description.pop("base64")), "<f2").astype(np.float64)
    sizes = [rows * columns for _, rows, columns in description["shapes"]]
    parts = np.split(numbers, np.cumsum(sizes))  # the last one is empty
    arrays = {
        name: part.reshape(rows, columns)
        for (name, rows, columns), part in zip(description["shapes"], parts, strict=False)
    }
    return exact(arrays, description), description


def probabilities(inflector: Inflector, examples: Sequence[Example]) -> list[dict[str, float]]:
    """The listed forms of each example, most probable first."""
    return [
        {inflector.form(h.tokens): h.probability for h in result.hypotheses if h.finished}
        for result in inflector.predict(examples)
    ]


def facts(before: Inflector, after: Inflector, examples: Sequence[Example]) -> dict[str, Any]:
    """What the pages say of the rounded model, and of what rounding costs, by verbs held out."""
    pairs = list(zip(probabilities(before, examples), probabilities(after, examples), strict=True))
    largest = max(abs(p.get(x, 0) - q.get(x, 0)) for p, q in pairs for x in p | q)
    best = [next(iter(q), None) for _, q in pairs]
    return {
        "examples": len(examples),
        "right": sum(form == e.form for form, e in zip(best, examples, strict=True)),
        "impossible": sum(not forced.possible.all() for _, forced in after.force_all(examples)),
        "single": sum(len(q) == 1 for _, q in pairs),
        "complete": sum(result.exact for result in after.predict(examples)),
        "other lists": sum(p.keys() != q.keys() for p, q in pairs),
        "largest difference": float(f"{largest:.1e}"),
    }


def write(name: str, seed: int) -> None:
    """Train one model, round it, and write its file."""
    inflector = trained(OUTPUTS[name], seed)
    train, dev, family = demo_split(seed)
    arrays = folded(inflector.model.params)
    rounded = {key: x.astype(np.float16) for key, x in arrays.items()}
    description = {
        "output": OUTPUTS[name],
        "seed": seed,
        "date": date.today().isoformat(),
        "source": inflector.source.tokens,
        "target": inflector.target.tokens,
        "tags": inflector.tags,
        "bundles": sorted(inflector.bundles),
        "seen": sorted({e.lemma for e in train}),
        "unseen": sorted({e.lemma for e in dev + family}),
        "shapes": [[key, *x.shape] for key, x in arrays.items()],
    }
    after = exact({key: x.astype(np.float64) for key, x in rounded.items()}, description)
    description["facts"] = facts(exact(arrays, description), after, dev + family)
    data = b"".join(x.astype("<f2").tobytes() for x in rounded.values())
    description["base64"] = base64.b64encode(data).decode()
    text = json.dumps(description, ensure_ascii=False, separators=(",", ":"))
    path = FOLDER / f"verbs-{name}.js"
    made = "// Made by tools/make_browser_model.py, with its seed and date."
    path.write_text(f"{made}\n(globalThis.VerbWeights ??= {{}}).{name} = {text};\n", "utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes; {description['facts']}")


if __name__ == "__main__":
    for output in OUTPUTS:
        write(output, int(sys.argv[1]) if len(sys.argv) > 1 else 0)
