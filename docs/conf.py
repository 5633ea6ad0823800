"""How Sphinx builds the documentation: `make docs`, offline, into build/docs/html.

The source folder is the repository itself, so that a link between a page and a notebook is the same
here and in a file browser. What belongs to it is named in ``include_patterns``.
"""

import sys
from importlib.metadata import version as installed_version
from os.path import relpath
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
# PyTorch, JAX and scikit-learn, whose pages would else be empty. What both have is taken from here.
ADAPTERS = "build/adapters/lib/python{}.{}/site-packages".format(*sys.version_info)
sys.path.append(str(HERE.parent / ADAPTERS))

project = "pyentmax"
author = "the pyentmax developers"
project_copyright = f"{author}; BSD-3-Clause"
version = release = installed_version("pyentmax")

root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb", "notebooks/solutions/*.md"]
include_patterns += ["CONTRIBUTING.md", "cython_ext/README.md"]
include_patterns += ["pyentmax/engine/README.md", "pyentmax/engine/backends/cuda/README.md"]
exclude_patterns = [".*", "build", "dist", "**/.ipynb_checkpoints"]  # nobody looks in there

extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx-mathjax-offline",  # MathJax's files, so that formulas need no network
    "reference",
]

# --- pages ----------------------------------------------------------------------------------------

myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "dollarmath", "fieldlist"]
myst_dmath_double_inline = True  # $$ within a paragraph, as Jupyter has it
myst_heading_anchors = 4
nb_execution_mode = "off"  # the committed outputs are the pages; `make notebooks` makes them
nb_ipywidgets_js = {}  # would come from the network
smartquotes = False  # g'' is a second derivative, and -- begins an option

# Of an example with prompts the input alone is copied; what a program printed has no button.
copybutton_selector = "div:not(.highlight-text):not(.highlight-none) > div.highlight > pre"
copybutton_prompt_text = r">>> |\.\.\. ?"
copybutton_prompt_is_regexp = True

# --- docstrings -----------------------------------------------------------------------------------

default_role = "name"  # `entmax` in a docstring is a link, `z` is not
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say what an argument is
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False
nitpicky = True
suppress_warnings = ["ref.python"]  # a word of a type that several classes have as a field
# Types come in words ("array of z's shape"), and nothing of other libraries is looked up.
nitpick_ignore_regex = [("py:(class|exc)", "(?!pyentmax).*")]

# --- the look -------------------------------------------------------------------------------------

html_theme = "furo"
html_title = "pyentmax"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["pyentmax.css"]
html_extra_path = ["_root"]
html_copy_source = False
html_search_scorer = str(HERE / "search_scorer.js")
html_domain_indices = False  # the one index has all names
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0066A1"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}


# --- pages that moved -----------------------------------------------------------------------------

MOVED = {  # old address: new one
    "docs/cuda-kernels": "pyentmax/engine/backends/cuda/README",
    "docs/guide/README": "docs/index",
    "docs/how-a-call-travels": "pyentmax/engine/README",
    "docs/guide/attention-on-gpu": "docs/guide/gpu",
    "docs/guide/check-attention": "docs/guide/check-implementation",
    "docs/guide/train-sparse-attention": "docs/guide/softmax-to-sparse",
    "docs/releasing": "CONTRIBUTING",
    "docs/results/english": "docs/results/inflection",
    "docs/results/sparsity": "docs/results/inflection",
    "docs/results/table1": "docs/results/inflection",
    "docs/results/table1-small": "docs/results/inflection",
    "notebooks/08c_four_ways_to_compare": "notebooks/08b_a_recurrent_network",
    "notebooks/solutions/08c": "notebooks/solutions/08b",
}
REDIRECT = """<!doctype html>
<html lang="en">
  <meta charset="utf-8">
  <title>This page has moved</title>
  <p>This page has moved: <a href="{0}">{0}</a>.</p>
  <script>location.replace("{0}" + location.hash)</script>
</html>
"""


def write_redirects(app: Sphinx, error: Exception | None) -> None:
    """Put a page that leads on at every address of `MOVED`."""
    for old, new in MOVED.items() if error is None else ():
        page = Path(app.outdir, f"{old}.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(REDIRECT.format(relpath(f"{new}.html", Path(old).parent)), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Lead from old addresses to new ones; leave diagrams, which are read on GitHub, text."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("build-finished", write_redirects)
