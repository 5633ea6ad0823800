"""`pyentmax.torch.entmax_package` in place of the entmax package."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stages import slow

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")

import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch.entmax_package import *  # noqa: E402, F403

THEIRS = importlib.util.find_spec("entmax")
needs_entmax = pytest.mark.skipif(
    THEIRS is None, reason="entmax is not installed: pip install --group bench"
)
# Of its private threshold functions.
NOT_OURS = "topk.py::test_entmax_topk topk.py::test_sparsemax_topk".split()


@needs_entmax
def test_names_and_signatures_are_theirs() -> None:
    import entmax

    ours = pt.entmax_package
    theirs = {
        name: (value, value.__module__.rpartition(".")[2])
        for name, value in vars(entmax).items()
        if callable(value) and not name.startswith("_")
    }
    assert len(theirs) == 22
    for name, (value, part) in theirs.items():
        assert getattr(getattr(ours, part), name) is getattr(ours, name)
        mine = inspect.signature(getattr(ours, name)).parameters.values()
        wanted = inspect.signature(value).parameters.values()
        assert [(p.name, p.default) for p in mine] == [(p.name, p.default) for p in wanted], name


@needs_entmax
@pytest.mark.parametrize("part", ["losses", "mask", *slow("root_finding", "topk")])
def test_their_own_tests_pass(part: str, tmp_path: Path) -> None:
    assert THEIRS is not None
    assert THEIRS.origin is not None
    text = Path(THEIRS.origin).with_name(f"test_{part}.py").read_text("utf-8")
    text, changed = re.subn(
        r"from entmax\.\w+ import", "from pyentmax.torch.entmax_package import", text
    )
    assert changed
    text = re.sub(r"^    _\w+,\n", "", text, flags=re.MULTILINE)  # imports of what is private
    # A budget given to normmax for its alpha.
    text = text.replace("k = 6*torch.rand", "k = 1 + 6*torch.rand")
    # They draw without a seed: now and then a p so small that differences of 1e-5 tell nothing.
    text += "\n\ndef setup_function():\n    torch.manual_seed(0)\n"
    (tmp_path / f"test_{part}.py").write_text(text, "utf-8")
    left_out = [f"test_{place}" for place in NOT_OURS]
    options = [f"--deselect={place}" for place in left_out]
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, f"--rootdir={tmp_path}", *options, f"test_{part}.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(pt.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout


def test_where_their_answers_are_wrong() -> None:
    z = torch.tensor([[1.0, 2.0, 4.0]] * 2, dtype=torch.float64)
    alpha = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    p = entmax_bisect(z, alpha)  # noqa: F405
    torch.testing.assert_close(p, torch.softmax(z, -1))
    p[:, 0].sum().backward()
    assert alpha.grad.isfinite().all()
    nothing = torch.full((1, 3), -torch.inf, requires_grad=True)
    p = entmax15(nothing)  # noqa: F405
    assert not p.any()
    p.sum().backward()
    assert not nothing.grad.any()
    ignored = Entmax15Loss(ignore_index=-1)  # noqa: F405
    assert ignored(z, torch.tensor([-1, 2])) == ignored(z[1:], torch.tensor([2]))
    assert ignored(z, torch.tensor([-1, -1])) == 0
    along = sparsemax(z.T.unsqueeze(-1), dim=-3, k=2)  # noqa: F405
    torch.testing.assert_close(along[..., 0].T, sparsemax(z))  # noqa: F405


def test_stands_in_for_the_package_under_its_name() -> None:
    """In a process of its own: the name is taken for good."""
    code = """
import sys, pyentmax.torch as pt
ours = pt.entmax_package
names = ["entmax", "entmax.activations", "entmax.losses", "entmax.root_finding"]
sys.modules.update(dict.fromkeys(names, ours))
import entmax.root_finding
from entmax.activations import Sparsemax
from entmax.losses import Entmax15Loss
assert entmax is ours and Sparsemax is ours.Sparsemax and Entmax15Loss is ours.Entmax15Loss
assert entmax.root_finding.budget_bisect is ours.budget_bisect
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(pt.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
