"""BLEU of translations, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Bleu(NamedTuple):
    """BLEU with sacrebleu's signature, which says how it was computed."""

    score: float
    signature: str


def bleu(translations: Sequence[str], references: Sequence[str]) -> Bleu:
    """Corpus BLEU by sacrebleu of sentences that are tokenised already (``tokenize=none``).

    Examples
    --------
    >>> found = bleu(["a dog sees a cat ."], ["a dog sees a cat ."])
    >>> round(found.score), "tok:none" in found.signature
    (100, True)
    """
    try:
        from sacrebleu import BLEU
    except ImportError:
        raise ImportError("BLEU needs sacrebleu: pip install 'pyentmax[models]'") from None
    metric = BLEU(tokenize="none", force=True)  # or it would warn that the text looks tokenised
    score = metric.corpus_score(list(translations), [list(references)]).score
    return Bleu(float(score), str(metric.get_signature()))
