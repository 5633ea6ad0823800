"""The examples that come with the library."""

from __future__ import annotations

from importlib import resources

from pyentmax.tasks.inflection.examples import Example, read_examples


def english_verbs() -> list[Example]:
    """English verbs: five forms of each of some 2,200, every common irregular verb among them.

    The table is our own: two word lists and the rules of spelling give it, by
    ``tools/make_english_verbs.py`` in the repository. American spelling, one form per cell. Sorted
    by lemma; for each the infinitive, third person singular, past, past participle and present
    participle, with UniMorph tags.

    Examples
    --------
    >>> [example.form for example in english_verbs() if example.lemma == "draw"]
    ['draw', 'draws', 'drew', 'drawn', 'drawing']
    """
    with resources.as_file(resources.files(__package__) / "english_verbs.tsv") as path:
        return read_examples(path)
