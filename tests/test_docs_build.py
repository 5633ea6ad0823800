"""The build of the documentation: what Sphinx and Chromium notice, what docstrings become.

`make check-docs` runs this; it needs the tools of `make docs`.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest
import webdriver

import pyentmax

pytestmark = pytest.mark.docs

DOCS = Path(__file__).parents[1] / "docs"
BROWSER = runpy.run_path(str(DOCS / "check_in_browser.py"))
SITE = runpy.run_path(str(DOCS / "check_site.py"))
needs_chromium = pytest.mark.skipif(
    BROWSER["browser"]() is None, reason="no Chromium (Debian: chromium)"
)
CONF = f"""
import sys
sys.path.insert(0, {str(DOCS)!r})
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference"]
default_role = "name"
myst_enable_extensions = ["amsmath"]
"""


@pytest.fixture
def build(tmp_path):
    """Build two pages, one in each markup; gives the site and what Sphinx warned of."""

    def build(rst: str, markdown: str) -> tuple[Path, str]:
        (tmp_path / "conf.py").write_text(CONF)
        (tmp_path / "index.rst").write_text(f"Start\n=====\n\n{rst}\n\n.. toctree::\n\n   page\n")
        (tmp_path / "page.md").write_text(f"# Page\n\n{markdown}\n")
        site = tmp_path / "site"
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(tmp_path), str(site)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return site, done.stderr

    return build


def test_names_without_entry_are_reported(build):
    _, warned = build(
        ".. reference:: pyentmax.reference.entropies\n\n.. reference:: pyentmax.seq2seq.nn", ""
    )
    missing = {line.split()[1] for line in warned.splitlines() if "on no page" in line}
    assert {"pyentmax.softmax", "pyentmax.MAPPINGS", "pyentmax.seq2seq.data.Vocabulary"} <= missing
    assert "pyentmax.reference.losses.targets.Target" in missing
    assert "pyentmax.gini_entropy" not in missing  # it is pyentmax.reference.entropies.gini_entropy
    assert not {
        name
        for name in missing
        if name.startswith(("pyentmax.seq2seq.nn.", "pyentmax.reference.entropies"))
    }
    assert not {name for name in missing if "._" in name}


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_modules_of_a_missing_library_are_named_by_it(build):
    page = ".. reference:: pyentmax.torch\n\n.. reference:: pyentmax.torch.transformers"
    site, warned = build(page, "")
    said = "built without torch, and shows nothing of "
    assert (site / "index.html").read_text().count(said) == 2
    assert "there is no" not in warned


def test_module_and_function_of_one_name(build):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    page = ".. reference:: pyentmax.torch\n\n.. reference:: pyentmax.torch.entmax"
    _, warned = build(page, "")
    assert "duplicate" not in warned


def test_textbook_versions_show_their_source(build):
    own = "\n\n".join(
        f".. textbooks:: pyentmax.{name}"
        for name in (
            "keep",
            "reference.mappings.entmax_sigmoid",
            "regularized",
            "sorting",
            "structured",
        )
    )
    site, warned = build(
        f".. textbooks::\n\n{own}", "`pyentmax.reference.mappings.csparsemax.textbook`"
    )
    html = (site / "index.html").read_text()
    text = re.sub("<.*?>", "", html)
    package = Path(str(pyentmax.__file__)).parent
    files = [*package.glob("*.py"), *package.glob("reference/mappings/*.py")]
    there = sum(file.read_text().count("\ndef textbook") for file in files)
    assert text.count("def textbook") == there
    assert "tau = (np.cumsum(falling) - 1) / rho" in unescape(text)
    assert "Problem: argmin over the simplex of ½‖p − z‖²" in text
    assert "#pyentmax.reference.mappings.csparsemax.textbook" in (site / "page.html").read_text()
    assert "textbook" not in warned


def test_code_that_names_something_is_linked(build):
    pages = (
        "`softmax` `pe.softmax()` `entmax` `pyentmax.gone` `pyentmax.seq2seq.nn.lstm` `softmax(z)`"
    )
    names = "softmax\n   softmax_jvp\n   softmax_vjp\n   entmax"
    site, warned = build(f".. reference:: pyentmax\n\n   {names}", pages)
    html = (site / "page.html").read_text()
    for linked in ("softmax", "pe.softmax()"):
        assert 'href="index.html#pyentmax.softmax"><code class="docutils literal' in html
        assert f">{linked}</span></code></a>" in html
    assert ">entmax</span></code></a>" not in html
    assert ">entmax</span></code>" in html
    warnings = [line for line in warned.splitlines() if "there is no" in line]
    assert len(warnings) == 1
    assert "page.md" in warnings[0]
    assert "there is no pyentmax.gone" in warnings[0]
    start = (site / "index.html").read_text()
    assert "The same function as <a" in start  # softmax_vjp is softmax_jvp
    assert 'href="#pyentmax.entmax"' in start


def test_displayed_formula_has_no_split(build):
    formula = ".. math::\n\n   \\begin{aligned}a &= b \\tag{1}\\\\ c &= d\\end{aligned}"
    site, _ = build(formula, "")
    html = (site / "index.html").read_text()
    assert "\\tag{1}" in html
    assert "split" not in html


DOCSTRING = """First, |z| and ``|kept|``.

    a = |b|
      + c

Parameters
----------
z : array
    of |x|

    more of it

Examples
--------
>>> print(1 | 2)
3"""


def test_formulas_in_docstrings_keep_their_lines():
    lines = DOCSTRING.splitlines()
    keep_mathematics = runpy.run_path(str(DOCS / "reference.py"))["keep_mathematics"]
    keep_mathematics(None, "function", "f", None, None, lines)
    text = "\n".join(lines)
    assert text.startswith(
        "First, \\|z\\| and ``|kept|``.\n\n.. code-block:: text\n\n    a = |b|\n"
    )
    assert text.count(".. code-block:: text") == 1
    assert "    of \\|x\\|\n\n    more of it" in text
    assert text.endswith(">>> print(1 | 2)\n3")


def test_site_without_a_library_is_incomplete(tmp_path):
    (tmp_path / "page.html").write_text("<p>This site was built without torch, and so on.</p>")
    assert SITE["faults"](tmp_path) == ["page.html: This site was built without torch"]
    assert SITE["faults"](tmp_path, incomplete=True) == []


@needs_chromium
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('<p>good</p><pre style="overflow: auto">$' + "x" * 200 + "</pre>", None),
        ('<div style="width: 500px">wide</div>', "px wide, a phone has 390"),
        ('<div class="math">\\[x\\]</div>', "1 formulas are not drawn"),
        ("<mjx-merror>no such command</mjx-merror>", "does not understand 'no such command'"),
        ("<p>such that $ x $</p>", "a $ is left in"),
        ('<img src="gone.png" alt="">', "1 pictures are not shown"),
    ],
)
def test_browser_notices_faults(tmp_path, body, message):
    (tmp_path / "docs").mkdir()
    head = '<!doctype html><meta name="viewport" content="width=device-width">'
    (tmp_path / "docs" / "page.html").write_text(f"{head}<body>{body}</body>")
    found = BROWSER["faults"](tmp_path)
    assert bool(found) == (message is not None)
    assert not found or (found[0].startswith("docs/page.html: ") and message in found[0])


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
    "How do I compare a sparse language model with softmax?": "report",
    "How do I mask padding?": "masking",
    "Does it work with torch.compile and autocast?": "guide/pytorch",
    "How do I replace nn.MultiheadAttention?": "softmax-to-sparse",
    "How do I make a Llama of Hugging Face sparse?": "hugging-face",
    "Can each head learn its own alpha?": "learn-alpha|guide/pytorch",
    "How fast is entmax on a GPU compared with softmax?": "results/gpu|guide/gpu",
    "How do I stop a translator from repeating words with fertility?": "bounds-and-structure",
    "How do neighbouring words share one attention weight?": "bounds-and-structure",
    "Why do sparse heads saturate, and how should training start?": "train-sparse|to-sparse",
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
    "Can I run a trained model without Python, in a browser?": "faq|onnx",
    "From how many tokens on is sparse attention faster to train?": "results/attention|faq.*tokens",
    "Reinforcement learning with a policy that is exactly zero": "sample-and-learn",
    "Which claims of the papers could not be reproduced?": "faq|results/README",
    "Is there a differentiable way to sort or rank?": "07c|sorting",
    "What replaces the sigmoid for multi-label classification?": "faq|losses",
    "How do I tune alpha by cross-validation?": "scikit-learn",
    "Which router does a mixture of experts need?": "route-tokens",
    "Why does my router's gradient vanish with top-1?": "route-tokens",
    "My training loss is exactly zero, is that a bug?": "loss-is-zero",
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
    "Can I train sparsemax with -log(p + eps)?": "05_fenchel|faq.*log-p",
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
