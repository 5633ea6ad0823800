"""BLEU of translations, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


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
    metric = bleu_metric()
    score = metric.corpus_score(list(translations), [list(references)]).score
    return Bleu(float(score), str(metric.get_signature()))


def bleu_metric(**options: Any) -> Any:
    """The metric of sacrebleu for sentences that are tokenised already."""
    # `force`: sacrebleu would warn that the text looks tokenised, which it is.
    return sacrebleu_module().BLEU(tokenize="none", force=True, **options)


def sacrebleu_module() -> Any:
    """The module; an ImportError says what to install."""
    try:
        import sacrebleu
    except ImportError:
        raise ImportError("BLEU needs sacrebleu: pip install 'pyentmax[models]'") from None
    return sacrebleu
