"""The families of the shared task's 102 languages, for a table that is shorter than one of each.

Indo-European is split into its branches. A family with one language here, or a language without
relatives, is under "alone in its family".
"""

from __future__ import annotations

_GROUPS = {
    "Germanic": "danish dutch english faroese german icelandic middle-high-german "
    "middle-low-german north-frisian norwegian-bokmaal norwegian-nynorsk old-english old-saxon "
    "swedish west-frisian yiddish",
    "Romance, Latin": "asturian catalan french friulian galician italian ladin latin "
    "middle-french neapolitan norman occitan old-french portuguese romanian spanish venetian",
    "Slavic": "belarusian bulgarian czech kashubian lower-sorbian macedonian old-church-slavonic "
    "polish russian serbo-croatian slovak slovene ukrainian",
    "Baltic": "latvian lithuanian",
    "Celtic": "breton cornish irish old-irish scottish-gaelic welsh",
    "Indo-Iranian": "bengali hindi kurmanji pashto persian sanskrit sorani urdu",
    "Albanian, Armenian, Greek": "albanian armenian greek old-armenian",
    "Turkic": "azeri bashkir crimean-tatar kazakh khakas tatar turkish turkmen uzbek",
    "Uralic": "estonian finnish hungarian ingrian karelian livonian northern-sami votic",
    "Semitic": "arabic classical-syriac hebrew maltese",
    "Northwest Caucasian": "adyghe kabardian",
    "Sino-Tibetan": "khaling tibetan",
    "Bantu": "swahili zulu",
    "alone in its family": "basque georgian greenlandic haida kannada mapudungun murrinhpatha "
    "navajo quechua",
}

FAMILIES = {family: tuple(names.split()) for family, names in _GROUPS.items()}
"""Family or branch → its languages, as the shared task names its files."""

FAMILY_OF = {language: family for family, names in FAMILIES.items() for language in names}
