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
    "When is softmax better than a sparse mapping?": "choose",
    "Which k is good for top-k attention?": "top-k",
    "Why is the gradient of my attention zero?": "faq",
    "Why is my perplexity infinite?": "report|faq",
    "How do I compare a sparse language model with softmax?": "report|choose.*language-model",
    "How do I mask padding?": "masking",
    "Does it work with torch.compile and autocast?": "guide/pytorch",
    "How do I replace nn.MultiheadAttention?": "softmax-to-sparse",
    "How do I make a Llama of Hugging Face sparse?": "hugging-face",
    "Can each head learn its own alpha?": "learn-alpha|guide/pytorch",
    "How fast is entmax on a GPU compared with softmax?": "results/gpu|guide/gpu",
    "How do I stop a translator from repeating words with fertility?": "bounds-and-structure",
    "How do neighbouring words share one attention weight?": "bounds-and-structure",
    "Why do sparse heads saturate, and how should training start?": "to-sparse",
    "How is the threshold found without sorting?": "faq|03_finding",
    "How is the Jacobian of entmax derived?": "04_jacobians",
    "Is the list of hypotheses complete, and can I prove it?": "decode-exactly|faq",
    "How do I train with several labels per example?": "losses",
    "Does it support bfloat16?": "faq",
    "How do I check my own implementation of sparsemax?": "check-implementation",
    "How do I cite pyentmax?": "faq",
    "My sequences have different lengths, how do I batch them without padding?": "masking|rows",
    "Will a model trained on short inputs still work on long ones?": "16_longer|length|faq.*short",
    "Attention weights get flatter the longer the context is, what helps?": "16_longer|length",
    "How can a query attend to nothing at all?": "faq|guide/sparse-attention",
    "check_mapping says a property failed, where is the mistake?": "check-implementation",
    "Can I run a trained model without Python, in a browser?": "faq|onnx|docs/draw",
    "From how many tokens on is sparse attention faster to train?": "results/attention|faq.*tokens",
    "Reinforcement learning with a policy that is exactly zero": "sample-and-learn",
    "Which claims of the papers could not be reproduced?": "faq|what-did-not-hold",
    "Is there a differentiable way to sort or rank?": "07c|sorting",
    "What replaces the sigmoid for multi-label classification?": "faq|losses",
    "How do I tune alpha by cross-validation?": "scikit-learn",
    "Which router does a mixture of experts need?": "route-tokens",
    "Why does my router's gradient vanish with top-1?": "route-tokens",
    "My training loss is exactly zero, is that a bug?": "loss-is-zero|misconceptions.*bug",
    "Should I divide by the number of active examples?": "loss-is-zero",
    "When should I stop training if the loss is 0?": "loss-is-zero",
    "Which results failed to reproduce, and why?": "what-did-not-hold",
    "What is the gradient of a ragged softmax?": "rows-of-different-lengths",
    "Why do conformal sets cover?": "scikit-learn",
    "Gradient of the log-probability of a sampled action": "sample-and-learn",
    "List everything a Hugging Face model can generate": "list-outputs",
    "Prove that my language model never writes a word": "list-outputs",
    "In which order should I read the notebooks?": "docs/notebooks",
    "How do I train with a vocabulary of 32,000 words?": "large-vocabulary",
    "Is one query against a cache of keys cheaper?": "decode-with-a-cache",
    "Sample from softmax without computing all logits": "exact-heads",
    "Why does attention need a sink?": "sparse-attention|faq.*attend",
    "What does an alpha below 1 do?": "faq.*below|losses.html#heavier",
    "Is the sparsemax that I found in a gist right?": "check-implementation",
    "What is the derivative of soft ranks?": "07c",
    "How is the gradient of SparseMAP computed, and is it exact?": "07c",
    "Can pretrained weights run sparsely without training?": "hugging-face",
    "Is sparsemax related to kernels of density estimation?": "faq.*kernel|02_entropies",
    "How wide must a beam be to lose nothing?": "09_drawn|decode-exactly",
    "What is the derivative of entmax in alpha?": "06_learning|learn-alpha",
    "What is a Fenchel-Young loss?": "05_fenchel|guide/losses",
    "Are the probabilities of a sparse model calibrated?": "report.*calibration|09_drawn",
    "My float16 scores of -inf give NaN": "faq.*nan",
    "How do I use an entropy of my own?": "own-mapping",
    "Which algorithm finds the threshold?": "03_finding|faq.*threshold",
    "How do I use it in a scikit-learn pipeline?": "guide/scikit-learn",
    "Train a small sparse GPT from scratch": "sparse-gpt",
    "How do I sample without top-p?": "sparse-gpt",
    "Where can I move the water with a slider?": "01_from|play",
    "Can I train sparsemax with -log(p + eps)?": "05_fenchel|faq.*log-p|misconceptions.*log",
    "Prove that the Jacobian is symmetric": "04_jacobians",
    "How is label smoothing defined for sparsemax?": "05_fenchel",
    "How many experts get a gradient?": "route-tokens",
    "Compute sparsemax by hand": "01_from",
    "What does softmax do to the empty string?": "09_drawn",
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
