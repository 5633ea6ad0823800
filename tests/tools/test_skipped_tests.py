"""What no stage ran is listed, with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import install_test_packages
import pytest
from skipped_tests import never_run, report

TESTS = """
import pytest
def test_both(): ...
@pytest.mark.skipif({torch}, reason="no PyTorch")
def test_torch(): ...
@pytest.mark.parametrize("n", [1, 2])
def test_browser(n): pytest.skip("no Chromium")
def test_gpu(): pytest.importorskip("cupy_of_nobody", reason="no CUDA device")
"""
WHOLE = "import pytest\npytest.skip('no JAX', allow_module_level=True)\n"


@pytest.mark.slow
def test_skip_that_another_stage_ran_is_left_out(tmp_path: Path) -> None:
    conftest = Path(__file__).parents[1] / "conftest.py"
    pytest_alone = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"]
    (tmp_path / "conftest.py").write_text(conftest.read_text("utf-8"), "utf-8")
    for torch, whole in ((True, WHOLE), (False, "def test_jax(): ...\n")):
        (tmp_path / "test_some.py").write_text(TESTS.format(torch=torch))
        (tmp_path / "test_jax.py").write_text(whole)
        subprocess.run(
            [*pytest_alone, "--rootdir", tmp_path, tmp_path],
            check=True,
            env=os.environ | {"PYENTMAX_TEST_OUTCOMES": str(tmp_path)},
            stdout=subprocess.DEVNULL,
        )
    assert {reason: len(tests) for reason, tests in never_run(tmp_path).items()} == {
        "no Chromium": 2,
        "no CUDA device": 1,
    }
    assert "no Chromium: test_some.py::test_browser[1] …" in next(report(tmp_path))


def test_missing_packages_are_named(monkeypatch, capsys) -> None:
    monkeypatch.setattr(install_test_packages, "NEEDED", {"python-of-nobody": "nobody-dev"})
    monkeypatch.setenv("PATH", "")
    install_test_packages.main()
    assert "no apt-get; tests that need nobody-dev are skipped" in capsys.readouterr().out
