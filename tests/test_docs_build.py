"""The build of the documentation: what Sphinx and Chromium notice, what docstrings become.

`make check-docs` runs this; it needs the tools of `make docs`.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from urllib.parse import quote

import pytest
import webdriver

pytestmark = pytest.mark.docs

DOCS = Path(__file__).parents[1] / "docs"
BROWSER = runpy.run_path(str(DOCS / "check_in_browser.py"))
needs_chromium = pytest.mark.skipif(
    BROWSER["browser"]() is None, reason="no Chromium (Debian: chromium)"
)


@needs_chromium
def test_site_in_browser():
    site = DOCS.parent / "build" / "docs" / "html"
    assert site.is_dir(), "run make docs"
    assert not BROWSER["faults"](site)


# Questions of newcomers, in their own words, and pages that answer them.
QUESTIONS = {
    "How do I install it without a compiler?": "install",
    "How do I use 1.5-entmax instead of softmax in PyTorch?": "guide/pytorch|softmax-to-sparse",
    "Which alpha should I take?": "choose|faq",
    "Why is the gradient of my attention zero?": "faq",
    "Why is my perplexity infinite?": "report|faq",
    "How do I mask padding?": "masking",
    "Does it work with torch.compile and autocast?": "guide/pytorch",
    "How fast is entmax on a GPU compared with softmax?": "results/gpu|guide/gpu",
    "Is the list of hypotheses complete, and can I prove it?": "decode-exactly|faq",
    "Does it support bfloat16?": "faq",
    "How do I check my own implementation of sparsemax?": "check-implementation",
    "My sequences have different lengths, how do I batch them without padding?": "masking|rows",
    "How do I train with a vocabulary of 32,000 words?": "large-vocabulary",
    "What is a Fenchel-Young loss?": "05_fenchel|guide/losses",
    "My float16 scores of -inf give NaN": "faq.*nan",
    "Which algorithm finds the threshold?": "03_finding|faq.*threshold",
    "Train a small sparse GPT from scratch": "sparse-gpt",
}
FOUND = """
const links = [...document.querySelectorAll("#search-results ul.search > li > a")];
return links.slice(0, 3).map(link => link.getAttribute("href"));
"""
IS_DONE = "return /search finished|did not match/i.test(document.body.innerText)"


@pytest.mark.skipif(webdriver.DRIVER is None, reason=webdriver.MISSING)
def test_search_finds_the_page_that_answers():
    start = (DOCS.parent / "build" / "docs" / "html" / "search.html").as_uri()
    missed = {}
    with webdriver.Browser() as chromium:
        for question, pages in QUESTIONS.items():
            chromium.open(f"{start}?q={quote(question)}")
            chromium.wait(IS_DONE, seconds=20)
            first = chromium.run(FOUND)
            if not any(re.search(pages, address) for address in first):
                missed[question] = first
    assert not missed
