"""A small corpus with planted questions, in which one mark changes what other words mean.

In spoken German, *was*, *wer*, *wen* and *wo* ask in a question and mean *something*, *someone* and
*somewhere* in a statement:

    du siehst heute was .        you see something today .
    du siehst heute was ?        you see what today ?

Word order is the same, so only the mark at the end tells, at any distance. A model has to carry the
mark to these words, and a head of the encoder that does so is an interrogation head (Correia et al.
2019, Figure 9). Of the 28,000 training sentences of Multi30k four end in a question mark, too few
for such a head; hence this corpus. To write it, and to train a small Transformer on it, in
``DIR/1.5``, or with another attention, such as 1 or "learned":

    python -m experiments.correia2019.planted DIR [ATTENTION]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.attention_start import StartConfig
from experiments.tasks.translation import SentencePair, Translator, train_translator
from pyentmax.seq2seq.training import History, RunOptions

MODEL: dict[str, Any] = {
    "width": 32,
    "layers": 1,
    "heads": 4,
    "inner": 64,
    "norm": "pre",
    "dropout": 0.1,
    "output": "1",
    "tied": "output",
}
TRAINING = StartConfig(
    updates=400,
    rate=3e-3,
    schedule="inverse_sqrt",
    warmup=100,
    betas=(0.9, 0.98),
    clip=1.0,
    # Queries and keys learn faster than the rest: otherwise a head may stop short of all the
    # weight, since the rest can make up for it.
    rate_factors={"query": 5.0, "key": 5.0},
)
HELD_OUT = 200  # pairs at the end
MARK = "?"
INTERROGATIVES = {
    "wer": ("who", "someone"),
    "was": ("what", "something"),
    "wen": ("whom", "someone"),
    "wo": ("where", "somewhere"),
}
"""Planted word → its translations in a question and in a statement."""

_PEOPLE = {"du": "you", "der mann": "the man", "die frau": "the woman", "anna": "anna"}
_VERBS = {"sieht": "sees", "sucht": "seeks", "malt": "paints", "findet": "finds", "kennt": "knows"}
_THINGS = {"den hund": "the dog", "das buch": "the book", "die lampe": "the lamp", "ihn": "him"}
_TIMES = {"heute": "today", "jetzt": "now", "oft": "often", "noch immer": "still"}
_PLACES = {"im park": "in the park", "am see": "at the lake", "dort": "there"}
_SHARE_PLANTED = 0.6
_SHARE_FILLED = 0.5


def planted_questions(count: int = 2400, seed: int = 0) -> list[SentencePair]:
    """Pairs of German sentences and their translations, no source twice, half of them questions.

    Examples
    --------
    >>> for pair in planted_questions(4):
    ...     print(pair.source, "|", pair.target)
    wer sucht heute ihn . | someone seeks today him .
    wer malt wen . | someone paints someone .
    anna sieht was wo ? | anna sees what where ?
    die frau malt wen ? | the woman paints whom ?
    """
    rng = np.random.default_rng(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        question = bool(rng.random() < 0.5)
        source, target = _sentence(rng, question)
        found[source] = target
    return [SentencePair(*pair) for pair in found.items()]


def _sentence(rng: np.random.Generator, question: bool) -> tuple[str, str]:
    """Subject, verb, object, and sometimes time and place; some of these planted."""

    def part(words: dict[str, str], planted: str) -> tuple[str, str]:
        if rng.random() < _SHARE_PLANTED:
            return planted, INTERROGATIVES[planted][0 if question else 1]
        return _draw_entry(rng, words)

    parts = [part(_PEOPLE, "wer"), _draw_entry(rng, _VERBS)]
    times = [_draw_entry(rng, _TIMES)] if rng.random() < _SHARE_FILLED else []
    parts += times
    parts.append(part(_THINGS, str(rng.choice(["was", "wen"]))))
    if rng.random() < _SHARE_FILLED:
        parts.append(part(_PLACES, "wo"))
    mark = MARK if question else "."
    german, english = zip(*parts, (mark, mark), strict=True)
    return " ".join(german), " ".join(english)


def _draw_entry(rng: np.random.Generator, words: dict[str, str]) -> tuple[str, str]:
    return list(words.items())[rng.integers(len(words))]


def write(folder: Path) -> None:
    """Write the corpus as two tables."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = planted_questions()
    for name, part in (("train", pairs[:-HELD_OUT]), ("dev", pairs[-HELD_OUT:])):
        text = "".join(f"{pair.source}\t{pair.target}\n" for pair in part)
        (folder / f"planted-{name}.tsv").write_text(text, "utf-8")


def train(
    options: RunOptions | None = None, attention: str = "1.5", **changes: Any
) -> tuple[Translator, History]:
    """Train the small Transformer: some head of its encoder looks for the question mark.

    ``changes`` are fields of `StartConfig`.
    """
    pairs = planted_questions()
    data = pairs[:-HELD_OUT], pairs[-HELD_OUT:]
    return train_translator(
        "transformer",
        *data,
        replace(TRAINING, **changes),
        options,
        tokens=512,
        attention=attention,
        **MODEL,
    )


if __name__ == "__main__":
    folder, attention = Path(sys.argv[1]), [*sys.argv[2:], "1.5"][0]
    write(folder)
    train(RunOptions(folder / attention), attention)
