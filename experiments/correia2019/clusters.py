"""The pieces of each word, which a head may join."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def word_clusters(
    pieces: Sequence[str],
    *,
    begins: str = "▁",
    smallest: int = 2,
    hyphens: Collection[str] = ("@-@",),
) -> list[tuple[int, ...]]:
    """The positions of the pieces of each word, for words of at least ``smallest`` pieces.

    Parameters
    ----------
    pieces : sequence of str
        A sentence cut into sub-words, where the first of each word begins with ``begins``, as in
        sentencepiece.
    begins : str
    smallest : int, default 2
    hyphens : collection of str
        Words that join their neighbours to one: the tokeniser of Moses writes "well @-@ known". A
        hyphen without spaces is inside its word in any case.

    Examples
    --------
    >>> word_clusters(["▁der", "▁hund", "e", "kuchen", "▁liegt"])
    [(1, 2, 3)]
    >>> word_clusters(["▁a", "▁well", "▁@-@", "▁known", "▁t", "-", "shirt"])
    [(1, 2, 3), (4, 5, 6)]
    """
    words: list[list[int]] = []
    for i, piece in enumerate(pieces):
        if piece.startswith(begins) or not words:
            words.append([])
        words[-1].append(i)
    clusters: list[list[int]] = []
    joined = False
    for word in words:
        hyphen = "".join(pieces[i] for i in word).removeprefix(begins) in hyphens
        if clusters and (hyphen or joined):
            clusters[-1] += word
        else:
            clusters.append(word)
        joined = hyphen
    return [tuple(cluster) for cluster in clusters if len(cluster) >= smallest]
