"""The spelling rules of regular English verb endings, one short function an ending.

Spelling follows sound, which a spelling rule cannot hear. Two marks help it where letters are not
enough: *stressed* (the last of several syllables carries the stress: regret, regretting, but visit,
visiting) and *soft* (the e before -ing keeps a g soft: singeing is not singing).
"""

from __future__ import annotations

import re

# A consonant letter, one vowel letter, one consonant letter. The u of "qu" is no vowel (quit), nor
# is y at the start (yap); final w, x, y and h are never doubled: they spell vowels or two sounds.
_SHORT_VOWEL_END = re.compile(r"(^|^y|qu|[^aeiouy])[aeiouy][^aeiouwxyh]$")
_CONSONANT_Y = re.compile(r"[^aeiou]y$")
_SIBILANT = re.compile(r"(s|x|z|ch|sh)$")
_CONSONANT_O = re.compile(r"[^aeiou]o$")
_VOWEL_C = re.compile(r"[aeiou]c$")
# The e is heard, or part of the vowel, after another e (agree), o (canoe) and y (dye), and where it
# is the only vowel (be).
_SILENT_E = re.compile(r"[aeiouy].*[^eoy]e$")


def third_person(lemma: str, *, stressed: bool = False) -> str:
    """Third person singular of the present: *lemma* with -s, -es or -ies.

    Parameters
    ----------
    lemma : str
        The infinitive.
    stressed : bool
        Whether a last syllable that is not the only one carries the stress.

    Examples
    --------
    Mostly -s; after a sibilant, which -s could not be heard behind, -es:

    >>> third_person("draw"), third_person("watch"), third_person("fix")
    ('draws', 'watches', 'fixes')

    A single s or z after a short stressed vowel is doubled first:

    >>> third_person("quiz"), third_person("gas"), third_person("focus")
    ('quizzes', 'gasses', 'focuses')

    Consonant and y becomes -ies, consonant and o takes -es; after a vowel nothing changes:

    >>> third_person("carry"), third_person("play"), third_person("echo"), third_person("woo")
    ('carries', 'plays', 'echoes', 'woos')
    """
    if _CONSONANT_Y.search(lemma):
        return lemma[:-1] + "ies"
    if _SIBILANT.search(lemma):
        return _double_final(lemma, stressed) + "es"
    if _CONSONANT_O.search(lemma):
        return lemma + "es"
    return lemma + "s"


def regular_past(lemma: str, *, stressed: bool = False) -> str:
    """Past tense, and past participle, of a regular verb: *lemma* with -ed, -d or -ied.

    Parameters
    ----------
    lemma : str
        The infinitive.
    stressed : bool
        Whether a last syllable that is not the only one carries the stress.

    Examples
    --------
    Only -d after any e:

    >>> regular_past("claw"), regular_past("bake"), regular_past("agree"), regular_past("tie")
    ('clawed', 'baked', 'agreed', 'tied')

    Consonant and y becomes -ied; after a vowel nothing changes:

    >>> regular_past("carry"), regular_past("play")
    ('carried', 'played')

    A consonant after a short stressed vowel is doubled; c, to stay hard, becomes ck:

    >>> regular_past("stop"), regular_past("regret", stressed=True), regular_past("visit")
    ('stopped', 'regretted', 'visited')
    >>> regular_past("panic"), regular_past("arc")
    ('panicked', 'arced')
    """
    if lemma.endswith("e"):
        return lemma + "d"
    if _CONSONANT_Y.search(lemma):
        return lemma[:-1] + "ied"
    return _double_final(lemma, stressed) + "ed"


def present_participle(lemma: str, *, stressed: bool = False, soft: bool = False) -> str:
    """Present participle: *lemma* with -ing.

    Parameters
    ----------
    lemma : str
        The infinitive.
    stressed : bool
        Whether a last syllable that is not the only one carries the stress.
    soft : bool
        Whether a silent e stays, to keep the g before it soft.

    Examples
    --------
    A silent e is dropped; one that is heard, or makes the vowel, stays:

    >>> present_participle("bake"), present_participle("argue"), present_participle("agree")
    ('baking', 'arguing', 'agreeing')
    >>> present_participle("canoe"), present_participle("dye"), present_participle("be")
    ('canoeing', 'dyeing', 'being')
    >>> present_participle("singe", soft=True), present_participle("cringe")
    ('singeing', 'cringing')

    No word has i and y, or two i, side by side for -ie; a y stays:

    >>> present_participle("tie"), present_participle("carry")
    ('tying', 'carrying')

    Doubling, and ck for c, as before -ed:

    >>> present_participle("run"), present_participle("begin", stressed=True)
    ('running', 'beginning')
    >>> present_participle("open"), present_participle("panic")
    ('opening', 'panicking')
    """
    if lemma.endswith("ie"):
        return lemma[:-2] + "ying"
    if _SILENT_E.search(lemma) and not soft:
        return lemma[:-1] + "ing"
    return _double_final(lemma, stressed) + "ing"


def _double_final(lemma: str, stressed: bool) -> str:
    """*lemma* ready for an ending with a vowel: its last consonant doubled, or its c made ck."""
    if _VOWEL_C.search(lemma):
        return lemma + "k"
    if _SHORT_VOWEL_END.search(lemma) and (stressed or _is_monosyllable(lemma)):
        return lemma + lemma[-1]
    return lemma


def _is_monosyllable(lemma: str) -> bool:
    """Whether *lemma*, which ends in a consonant, has a single run of vowel letters."""
    return len(re.findall(r"[aeiouy]+", lemma)) == 1
