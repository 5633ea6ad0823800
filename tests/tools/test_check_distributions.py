"""Distributions: what is in them, that a fault is noticed, and that two builds are the same."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import check_distributions
import pytest
from check_distributions import faults_of_source, faults_of_wheel

SOURCE = Path(__file__).parents[2]
EPOCH = "1700000000"
INFO = "pyentmax-0.1.0.dist-info"
FILES = {"pyentmax/__init__.py": "", "pyentmax/py.typed": "", "pyentmax/a/b.cu": "kernel"}
KERNELS = "pyentmax/_cpu.cpython-311-x86_64-linux-gnu.so"
WHOLE = {**FILES, f"{INFO}/METADATA": "", f"{INFO}/licenses/LICENSE": "BSD"}
PURE, OF_A_PLATFORM = "pyentmax-0.1.0-py3-none-any.whl", "pyentmax-0.1.0-cp311-cp311-linux.whl"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sources, as `FILES` has them, beside what is left of a build."""
    root = tmp_path / "checkout"
    for name, text in {**FILES, KERNELS: "", "pyentmax/__pycache__/a.pyc": ""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def wheel(root: Path, name: str, files: dict[str, str]) -> Path:
    path = root.parent / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def sdist(root: Path, names: list[str]) -> Path:
    path = root.parent / "pyentmax-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"pyentmax-0.1.0/{name}"), io.BytesIO())
    return path


def test_complete_wheels_have_no_fault(root: Path):
    assert not list(faults_of_wheel(wheel(root, PURE, WHOLE), root))
    assert not list(faults_of_wheel(wheel(root, OF_A_PLATFORM, {**WHOLE, KERNELS: "code"}), root))


@pytest.mark.parametrize(
    ("name", "added", "taken", "fault"),
    [
        (PURE, "", "pyentmax/a/b.cu", "lacks pyentmax/a/b.cu"),
        (PURE, "", f"{INFO}/licenses/LICENSE", "lacks the licence"),
        (PURE, "pyentmax/a/c.h", "", "has pyentmax/a/c.h, which is not in the package"),
        (PURE, "tests/test_a.py", "", "has tests/test_a.py, which installs beside the package"),
        (PURE, "cython_ext/_cpu.c", "", "has cython_ext/_cpu.c, which installs beside the package"),
        (PURE, KERNELS, "", f"has {KERNELS}, but its name says that it runs anywhere"),
        (OF_A_PLATFORM, "", "", "has no kernels, though its name is that of one platform"),
    ],
)
def test_fault_of_wheel_is_named(root: Path, name: str, added: str, taken: str, fault: str):
    files = {**WHOLE, **({added: ""} if added else {})}
    files.pop(taken, None)
    assert list(faults_of_wheel(wheel(root, name, files), root)) == [fault]


def test_build_folder_in_kernels_is_a_fault(root: Path):
    for folder in (f"{root}/cython_ext", "../tmp/lib/python3.11/site-packages/numpy"):
        files = {**WHOLE, KERNELS: f"code {folder}/a.h code"}
        (fault,) = faults_of_wheel(wheel(root, OF_A_PLATFORM, files), root)
        assert fault.startswith(f"{KERNELS} names a folder of the build")


def test_faults_of_source_distribution_are_named(root: Path):
    names = [*FILES, *check_distributions.NEEDED_BESIDE]
    assert not list(faults_of_source(sdist(root, names), root))
    names.remove("LICENSE")
    names.remove("pyentmax/a/b.cu")
    found = list(faults_of_source(sdist(root, [*names, KERNELS]), root))
    assert found == ["lacks LICENSE", "lacks pyentmax/a/b.cu", f"has {KERNELS}, which is built"]


# --- the real ones --------------------------------------------------------------------------------


def copy_of_the_sources(to: Path) -> Path:
    """What a checkout holds, without git and without what was built."""
    left = shutil.ignore_patterns(
        "__pycache__", ".*_cache", "*.so", "*.pyd", ".git", ".venv", ".hypothesis", "build", "dist",
        "*.egg-info",
    )  # fmt: skip
    shutil.copytree(SOURCE, to, ignore=left)
    return to


def build(folder: Path, what: str, to: Path) -> Path:
    """Build with the hooks that pip calls, without kernels, which take a minute."""
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(to)!r})"
    environment = {**os.environ, "PYENTMAX_NO_EXT": "1", "SOURCE_DATE_EPOCH": EPOCH}
    environment.pop("PYENTMAX_REQUIRE_EXT", None)
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    (made,) = to.glob("*.whl" if what == "wheel" else "*.tar.gz")
    return made


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(
    not (SOURCE / "MANIFEST.in").is_file() or not (SOURCE / "pyentmax").is_dir(),
    reason="the sources are not beside the tests",
)
def test_two_builds_are_identical_and_complete(tmp_path: Path):
    one, other = (copy_of_the_sources(tmp_path / name / "sources") for name in ("one", "other"))
    sources = [build(folder, "sdist", folder.parent / "out") for folder in (one, other)]
    assert digest(sources[0]) == digest(sources[1])
    assert not list(faults_of_source(sources[0], one))

    with tarfile.open(sources[0]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheels = [build(folder, "wheel", folder.parent / "out") for folder in (one, unpacked)]
    assert digest(wheels[0]) == digest(wheels[1])
    assert not list(faults_of_wheel(wheels[0], one))
