"""The package as it is installed, and what a build does when it cannot compile."""

from __future__ import annotations

import configparser
import importlib.metadata
import importlib.resources
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

import pyentmax

SOURCE = Path(__file__).parents[1]
PREFIX = "PYENTMAX_"  # of the variables that steer the build
needs_kernels = pytest.mark.skipif(
    importlib.util.find_spec("pyentmax._cpu") is None, reason="this installation has no kernels"
)
NO_COMPILER = os.path.join(os.sep, "nonexistent", "cc")


def test_metadata():
    metadata = importlib.metadata.metadata("pyentmax")
    assert metadata["Version"] == pyentmax.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get("License-Expression", metadata.get("License")) == "BSD-3-Clause"
    extras = set(metadata.get_all("Provides-Extra"))
    assert {"sparse", "models", "cuda12", "notebooks", "jax", "sklearn", "torch"} <= extras


def test_plain_install_needs_numpy_only():
    required = [r for r in importlib.metadata.requires("pyentmax") or [] if "extra ==" not in r]
    assert [re.split(r"[<>=!~ ;\[]", r)[0] for r in required] == ["numpy"]


def test_import_loads_only_numpy():
    heavy = ["scipy", "matplotlib", "tqdm", "pooch", "sentencepiece", "sacrebleu", "cupy", "torch"]
    code = f"import sys, pyentmax; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has its lock"
)
def test_kernels_leave_the_gil_disabled():
    code = "import sys, pyentmax.reference.mappings, pyentmax._cpu; print(sys._is_gil_enabled())"
    command = [sys.executable, "-W", "error", "-c", code]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHON_GIL"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=clean)
    assert run.stdout.strip() == "False"


def test_data_files_are_installed():
    package = importlib.resources.files("pyentmax")
    for path in (
        "py.typed",
        "seq2seq/inflection/english_verbs.tsv",
        "engine/backends/cuda/softmax.cu",
        "engine/backends/cuda/rows.cuh",
    ):
        assert (package / path).is_file(), path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The build files around an empty package: enough to try the ways in which a build can go."""
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(SOURCE / name, tmp_path)
    for folder in ("cython_ext", "tools"):
        shutil.copytree(SOURCE / folder, tmp_path / folder)
    (tmp_path / "pyentmax").mkdir()
    (tmp_path / "pyentmax" / "__init__.py").touch()
    return tmp_path


def build(project: Path, **environment: str) -> tuple[int, str, bool]:
    """Build in place; return the exit code, what was printed and whether there is a kernel."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX) and k != "CC"}
    run = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=project, env={**clean, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    built = any((project / "pyentmax").glob("_cpu*.[sp][oy]*"))
    return run.returncode, run.stdout, built


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_failed_build_warns_once(project: Path, broken: bool):
    error = "#error a compiler that cannot\n"
    if broken:
        (project / "cython_ext" / "_cpu.pyx").write_text(
            f'cdef extern from *:\n    """\n    {error}    """\n'
        )
        for source in (project / "cython_ext").rglob("*.c"):  # so that nobody waits for others
            source.write_text(error)
    code, printed, built = build(project, **({} if broken else {"CC": NO_COMPILER}))
    assert code == 0, printed
    assert not built
    assert printed.count("WITHOUT its compiled kernels") == 1, printed
    assert broken or NO_COMPILER in printed, printed


@pytest.mark.slow
def test_required_kernels_that_fail_are_an_error(project: Path):
    code, printed, built = build(project, CC=NO_COMPILER, PYENTMAX_REQUIRE_EXT="1")
    assert code != 0, printed
    assert not built
    assert NO_COMPILER in printed, printed


def test_build_without_kernels_on_request_is_silent(project: Path):
    code, printed, built = build(project, CC=NO_COMPILER, PYENTMAX_NO_EXT="1")
    assert code == 0, printed
    assert not built
    assert "WITHOUT" not in printed


def test_links_of_the_readme_lead_to_the_address(project: Path):
    config = configparser.ConfigParser(interpolation=None)
    config.read(project / "setup.cfg", "utf-8")
    config["metadata"]["url"] = "https://a.org/b"
    with (project / "setup.cfg").open("w", encoding="utf-8") as file:
        config.write(file)
    command = [sys.executable, "setup.py", "-q", "egg_info"]
    environment = {**os.environ, "PYENTMAX_NO_EXT": "1"}
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    metadata = (project / "pyentmax.egg-info" / "PKG-INFO").read_text("utf-8")
    assert f"](https://a.org/b/raw/v{pyentmax.__version__}/docs/images/" in metadata
    assert not re.search(r"\]\((?!https?:|#)", metadata)


def test_source_distribution_makes_its_folder(project: Path):
    command = [sys.executable, "setup.py", "-q", "sdist", "-d", "made/here"]
    environment = {**os.environ, "PYENTMAX_NO_EXT": "1", "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    assert [*(project / "made" / "here").glob("*.tar.gz")]


@pytest.fixture
def setup_file(monkeypatch) -> SimpleNamespace:
    """What setup.py defines, without a build."""
    pytest.importorskip("setuptools")
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    monkeypatch.setenv("PYENTMAX_NO_EXT", "1")
    monkeypatch.chdir(SOURCE)
    return SimpleNamespace(**runpy.run_path("setup.py"))


@pytest.mark.skipif(os.name != "posix" or not shutil.which("gcc"), reason="needs GCC")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["gcc", "-pthread"], True),
        (["env", "LC_ALL=C", "gcc"], True),  # as ccache, distcc and nice stand before it
        (["env", "missing-compiler"], False),
        (["echo", "Free Software Foundation"], False),
    ],
)
def test_gcc_is_known_behind_other_commands(setup_file, command, expected):
    compiler = SimpleNamespace(compiler=command)
    build = setup_file.OptionalBuildExt
    assert build.is_gcc(SimpleNamespace(compiler=compiler)) is expected


@pytest.mark.skipif(os.name != "posix" or not shutil.which("gcc"), reason="needs GCC")
@pytest.mark.parametrize(
    "flag",
    [
        "-ffast-math",
        "-funsafe-math-optimizations",
        "-fassociative-math -fno-signed-zeros -fno-trapping-math",
        "-freciprocal-math",
        "-ffinite-math-only",
        "-fno-signed-zeros",
    ],
)
def test_fast_math_of_the_user_is_undone(setup_file, flag):
    build = SimpleNamespace(compiler=SimpleNamespace(compiler_type="unix"), is_gcc=lambda: True)

    def macros(*flags):
        command = ["gcc", *flag.split(), *flags, "-dM", "-E", "-x", "c", os.devnull]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        fast = r"__(?:FAST_MATH|(?:ASSOCIATIVE|RECIPROCAL)_MATH|NO_SIGNED_ZEROS)__|__FINITE.* 1$"
        return re.findall(fast, run.stdout, re.MULTILINE)

    assert macros()
    assert not macros(*setup_file.OptionalBuildExt.flags(build)[0])


@pytest.mark.slow
@pytest.mark.parametrize("required", ["", "1"])
def test_module_that_does_not_import_is_no_success(project: Path, required: str):
    for source in (project / "cython_ext").rglob("*.c"):
        source.unlink()
    (project / "cython_ext" / "_cpu.pyx").write_text(
        'cdef extern from *:\n    """\n    int missing(void);\n    """\n'
        "    int missing()\nmissing()\n"
    )
    code, printed, built = build(project, PYENTMAX_REQUIRE_EXT=required)
    assert (code != 0) == bool(required), printed
    assert not built
    assert "missing" in printed
    assert required or printed.count("WITHOUT its compiled kernels") == 1, printed


@needs_kernels
@pytest.mark.skipif(os.name != "posix" or not shutil.which("gcc"), reason="needs GCC")
def test_the_native_build_is_the_fastest_that_runs(setup_file):
    command = SimpleNamespace(compiler=SimpleNamespace(compiler=["gcc"]))
    name = setup_file.OptionalBuildExt.native_build(command)
    fastest = next(iter(importlib.import_module("pyentmax._cpu").BUILDS))
    assert name.replace("_", "-") in fastest


@pytest.mark.parametrize("inplace", [False, True])
def test_a_wheel_has_all_builds(setup_file, monkeypatch, inplace):
    monkeypatch.setenv("PYENTMAX_BUILDS", "native")
    command = setup_file.OptionalBuildExt(importlib.import_module("setuptools").Distribution())
    command.inplace = inplace
    command.finalize_options()
    assert command.native == inplace


@pytest.mark.deep  # every other test runs what such a build has made
@needs_kernels
def test_build_with_compiler_makes_kernels(project: Path):
    code, printed, built = build(project, PYENTMAX_REQUIRE_EXT="1")
    assert code == 0, printed
    assert built
    assert "WITHOUT" not in printed


@needs_kernels
def test_kernels_contain_no_build_folder():
    kernels = importlib.util.find_spec("pyentmax._cpu")
    assert kernels is not None
    code = Path(str(kernels.origin)).read_bytes()
    assert b"site-packages" not in code  # else who builds elsewhere gets other bytes
    assert str(SOURCE).encode() not in code
