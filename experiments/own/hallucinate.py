"""More examples of inflection from few, with stems of random letters.

    python -m experiments.own.hallucinate FILE [--examples 10000] [--seed 0] > MORE

The stem is what a word and its form share: runs of three letters or more. Within a run each letter
is replaced with probability 1/2, by the same random letter in the word and in the form. Its first
and last letters stay, since the spelling of an ending depends on them (Anastasopoulos and Neubig
2019, section 3). A model that is trained on both files learns from the new one to copy letters.
"""

from __future__ import annotations

import argparse
from difflib import SequenceMatcher

import numpy as np

from pyentmax.seq2seq.inflection import read_examples


def with_another_stem(lemma: str, form: str, letters: str, rng: np.random.Generator) -> list[str]:
    """The word and its form with random letters in the stem.

    Examples
    --------
    >>> with_another_stem("outdraw", "outdrawing", "xyz", np.random.default_rng(0))
    ['ouxxraw', 'ouxxrawing']
    """
    new_lemma, new_form = list(lemma), list(form)
    matcher = SequenceMatcher(None, lemma, form, autojunk=False)
    for at, place, size in matcher.get_matching_blocks():
        for i in range(1, size - 1):
            if rng.random() < 0.5:
                new_lemma[at + i] = new_form[place + i] = str(rng.choice(list(letters)))
    return ["".join(new_lemma), "".join(new_form)]


def main() -> None:
    """Print the new examples, in the layout of the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", help="lines of lemma TAB form TAB tags")
    parser.add_argument("--examples", type=int, default=10_000, help="how many new ones")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    examples, rng = read_examples(args.file), np.random.default_rng(args.seed)
    letters = "".join(sorted({c for e in examples for c in e.lemma + e.form if c.isalpha()}))
    for i in rng.integers(len(examples), size=args.examples):
        lemma, form, tags, _ = examples[i]
        print(*with_another_stem(lemma, form, letters, rng), ";".join(tags), sep="\t")


if __name__ == "__main__":
    main()
