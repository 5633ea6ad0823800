"""What a translator finds possible at each step of a translation (Peters et al. 2019, Figure 2).

python -m experiments.peters2019.figure2 RUN SENTENCE TRANSLATION --pictures DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.tasks.translation import Translator
from pyentmax.seq2seq.inflection.reports import show


def main(argv: Sequence[str] | None = None) -> None:
    """Print the steps, and draw them with the attention at each."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("model", type=Path, metavar="RUN")
    parser.add_argument("sentence")
    parser.add_argument("translation")
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    args = parser.parse_args(argv)
    translator = Translator.load(args.model)
    decoding = translator.force(args.sentence, args.translation)
    source = translator.segmenter.split(args.sentence)
    show(translator, args.sentence, source, decoding, args.pictures, "1")


if __name__ == "__main__":
    main()
