"""Make the toy corpus of translation: ``python tools/make_toy_german.py``.

A small grammar writes German sentences and their English translations, all in lower case and split
into words. It was written for this library. What it has for an aligner to find:

- order: the participle or infinitive ends the German clause and stands in its middle in English;
  an adverb before the German verb puts the subject behind it; questions;
- agreement: German articles and adjectives go by gender, case and number, verbs by number, in
  English too; *a* or *an* by the word after it;
- words that become two (*sucht*, looks for), and two that become one (*hat … nicht*);
- one ambiguous word: *bank* is a bank or a bench. A place tells, if one is named: in town it is a
  bank, in the park or the garden a bench. Otherwise it is a bank in six of ten sentences, and
  nothing in the sentence tells. In the plural, *banken* and *bänke* are two words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TABLE = Path(__file__).parents[1] / "examples" / "toy_german.tsv"
PAIRS, SEED = 3200, 0
BANK_SHARE = 0.6


@dataclass(frozen=True)
class Noun:
    """A German noun with its gender and plural, and the English one."""

    german: str
    gender: str
    plural: str
    english: str
    english_plural: str


@dataclass(frozen=True)
class Verb:
    """A transitive verb: German singular, infinitive (and plural) and participle; then English."""

    singular: str
    infinitive: str
    participle: str
    english_singular: str
    english: str
    english_participle: str


PEOPLE = [
    Noun("mann", "m", "männer", "man", "men"),
    Noun("frau", "f", "frauen", "woman", "women"),
    Noun("kind", "n", "kinder", "child", "children"),
    Noun("lehrer", "m", "lehrer", "teacher", "teachers"),
    Noun("ärztin", "f", "ärztinnen", "doctor", "doctors"),
    Noun("mädchen", "n", "mädchen", "girl", "girls"),
    Noun("onkel", "m", "onkel", "uncle", "uncles"),
]
THINGS = [
    Noun("hund", "m", "hunde", "dog", "dogs"),
    Noun("katze", "f", "katzen", "cat", "cats"),
    Noun("apfel", "m", "äpfel", "apple", "apples"),
    Noun("buch", "n", "bücher", "book", "books"),
    Noun("brief", "m", "briefe", "letter", "letters"),
    Noun("haus", "n", "häuser", "house", "houses"),
    Noun("ei", "n", "eier", "egg", "eggs"),
    Noun("lampe", "f", "lampen", "lamp", "lamps"),
]
BANK = Noun("bank", "f", "banken", "bank", "banks")
BENCH = Noun("bank", "f", "bänke", "bench", "benches")
ADJECTIVES = {
    "alt": "old",
    "klein": "small",
    "groß": "big",
    "neu": "new",
    "rot": "red",
    "ehrlich": "honest",
}
VERBS = [
    Verb("sieht", "sehen", "gesehen", "sees", "see", "seen"),
    Verb("kauft", "kaufen", "gekauft", "buys", "buy", "bought"),
    Verb("sucht", "suchen", "gesucht", "looks for", "look for", "looked for"),
    Verb("findet", "finden", "gefunden", "finds", "find", "found"),
    Verb("malt", "malen", "gemalt", "paints", "paint", "painted"),
    Verb("vergisst", "vergessen", "vergessen", "forgets", "forget", "forgotten"),
    Verb("verkauft", "verkaufen", "verkauft", "sells", "sell", "sold"),
]
ADVERBS = {"heute": "today", "jetzt": "now", "oft": "often"}
PLACES = {"im park": "in the park", "im garten": "in the garden", "in der stadt": "in town"}
OF_THE_BANK = {"im park": BENCH, "im garten": BENCH, "in der stadt": BANK}
# Articles and the endings of adjectives behind them, by case and gender; "p" is the plural.
DEFINITE = {
    "nominative": {"m": ("der", "e"), "f": ("die", "e"), "n": ("das", "e"), "p": ("die", "en")},
    "accusative": {"m": ("den", "en"), "f": ("die", "e"), "n": ("das", "e"), "p": ("die", "en")},
}
INDEFINITE = {
    "nominative": {"m": ("ein", "er"), "f": ("eine", "e"), "n": ("ein", "es"), "p": ("", "e")},
    "accusative": {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es"), "p": ("", "e")},
}


def noun_phrase(
    noun: Noun, case: str, *, plural: bool, definite: bool, adjective: str | None
) -> tuple[str, str]:
    """A noun with article and adjective, in both languages.

    Examples
    --------
    >>> options = {"plural": False, "definite": False, "adjective": "alt"}
    >>> noun_phrase(PEOPLE[0], "accusative", **options)
    ('einen alten mann', 'an old man')
    """
    articles = (DEFINITE if definite else INDEFINITE)[case]
    article, ending = articles["p" if plural else noun.gender]
    german = [article, adjective and adjective + ending, noun.plural if plural else noun.german]
    english = [
        adjective and ADJECTIVES[adjective],
        noun.english_plural if plural else noun.english,
    ]
    words = [word for word in english if word]
    if definite:
        words.insert(0, "the")
    elif not plural:
        words.insert(0, "an" if words[0][0] in "aeio" or words[0] == "honest" else "a")
    return " ".join(word for word in german if word), " ".join(words)


def sentence(rng: np.random.Generator) -> tuple[str, str]:
    """A German sentence and its translation."""

    def chance(p: float) -> bool:
        return bool(rng.random() < p)

    def phrase(noun: Noun, case: str, plural: bool) -> tuple[str, str]:
        adjective = str(rng.choice(list(ADJECTIVES))) if chance(0.4) else None
        return noun_phrase(noun, case, plural=plural, definite=chance(0.6), adjective=adjective)

    plural, plural_object = chance(0.3), chance(0.3)
    place = str(rng.choice(list(PLACES))) if chance(0.4) else None
    if chance(0.2):
        noun = BANK if chance(BANK_SHARE) else BENCH
        if place is not None:
            noun = OF_THE_BANK[place]
    else:
        noun = THINGS[rng.integers(len(THINGS))]
    subject = phrase(PEOPLE[rng.integers(len(PEOPLE))], "nominative", plural)
    thing = phrase(noun, "accusative", plural_object)
    verb = VERBS[rng.integers(len(VERBS))]
    finite = (
        (verb.infinitive, verb.english)
        if plural
        else (
            verb.singular,
            verb.english_singular,
        )
    )
    have = ("haben", "have") if plural else ("hat", "has")
    do = "do" if plural else "does"
    where = ("", "") if place is None else (place, PLACES[place])
    adverb = str(rng.choice(list(ADVERBS)))
    kind = rng.choice(["plain", "adverb", "perfect", "modal", "question", "not"])
    (s, e_s), (o, e_o), (p, e_p) = subject, thing, where
    german, english = {
        "plain": ([s, finite[0], o, p], [e_s, finite[1], e_o, e_p]),
        "adverb": ([adverb, finite[0], s, o, p], [ADVERBS[adverb], e_s, finite[1], e_o, e_p]),
        "perfect": (
            [s, have[0], o, p, verb.participle],
            [e_s, have[1], verb.english_participle, e_o, e_p],
        ),
        "modal": (
            [s, "müssen" if plural else "muss", o, p, verb.infinitive],
            [e_s, "must", verb.english, e_o, e_p],
        ),
        "question": ([finite[0], s, o, p, "?"], [do, e_s, verb.english, e_o, e_p, "?"]),
        "not": ([s, finite[0], o, "nicht", p], [e_s, do, "not", verb.english, e_o, e_p]),
    }[str(kind)]
    return " ".join(filter(None, german)), " ".join(filter(None, english))


def corpus(pairs: int = PAIRS, seed: int = SEED) -> Iterator[tuple[str, str]]:
    """Pairs of which no two have the same source."""
    rng = np.random.default_rng(seed)
    seen: set[str] = set()
    while len(seen) < pairs:
        german, english = sentence(rng)
        if german not in seen:
            seen.add(german)
            yield german, english


def toy_german_table() -> str:
    """The text of the table."""
    return "".join(f"{german}\t{english}\n" for german, english in corpus())


if __name__ == "__main__":
    TABLE.write_text(toy_german_table(), encoding="utf-8")
    print(f"{TABLE}: {PAIRS} pairs")
