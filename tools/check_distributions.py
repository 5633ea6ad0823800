"""Check that wheels and source distributions contain exactly the files that belong there.

    python tools/check_distributions.py [--kernels-optional] dist/*

Compares with the checkout, or the unpacked source distribution, that contains this file. Prints a
line per file, and fails if one has a fault.
"""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
BUILT = re.compile(r"pyentmax/_cpu(\.[\w-]+)?\.(so|pyd)")
LEFT_OVER = re.compile(r"(^|/)(__pycache__|\.git|\.venv|build|dist)/|\.(py[co]|so|pyd|o|orig|swp)$")
# Without one of these folders a source distribution cannot be built or tested.
NEEDED_TO_BUILD = ("pyentmax", "cython_ext", "experiments", "tests", "tools")
NEEDED_BESIDE = ("LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py", "PKG-INFO")


def package_files(root: Path) -> set[str]:
    """The files of the package below `root`, but for what is built."""
    names = (path.relative_to(root).as_posix() for path in (root / "pyentmax").rglob("*"))
    kept = {name for name in names if not LEFT_OVER.search(name)}
    return {name for name in kept if (root / name).is_file()}


def faults_of_wheel(wheel: Path, root: Path, *, kernels_optional: bool = False) -> Iterator[str]:
    """What is wrong with a wheel, compared with the sources below `root`."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        built = sorted(filter(BUILT.fullmatch, names))
        for name in built:
            for folder in (str(root), "site-packages/"):
                if folder.encode() in archive.read(name):
                    yield f"{name} names a folder of the build, {folder}"
    in_package = {name for name in names if name.startswith("pyentmax/")} - {*built}
    expected = package_files(root)
    yield from (f"lacks {name}" for name in sorted(expected - in_package))
    yield from (
        f"has {name}, which is not in the package" for name in sorted(in_package - expected)
    )

    kept = re.compile(r"pyentmax-[^/]+\.dist-info/|pyentmax\.libs/")
    for name in sorted(names - in_package - {*built}):
        if not kept.match(name):
            yield f"has {name}, which installs beside the package"
    if not any(re.fullmatch(r"[^/]+\.dist-info/(licenses/)?LICENSE", name) for name in names):
        yield "lacks the licence"

    is_pure = wheel.name.endswith("-none-any.whl")
    if is_pure and built:
        yield f"has {built[0]}, but its name says that it runs anywhere"
    if not is_pure and not built and not kernels_optional:
        yield "has no kernels, though its name is that of one platform"
    if len(built) > 1:
        yield f"has kernels of several builds: {', '.join(built)}"


def faults_of_source(sdist: Path, root: Path) -> Iterator[str]:
    """What is wrong with a source distribution, compared with the checkout at `root`."""
    with tarfile.open(sdist) as archive:
        members = [PurePosixPath(entry.name) for entry in archive if entry.isfile()]
    names = {PurePosixPath(*path.parts[1:]).as_posix() for path in members}
    if len({path.parts[0] for path in members}) != 1:
        yield "does not unpack into one folder"
    yield from (f"lacks {name}" for name in NEEDED_BESIDE if name not in names)
    for folder in NEEDED_TO_BUILD:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not LEFT_OVER.search(name) and name not in names:
                yield f"lacks {name}"
    yield from (f"has {name}, which is built" for name in sorted(names) if LEFT_OVER.search(name))


def main(arguments: list[str] | None = None) -> int:
    """Check the files named on the command line; returns how many have faults."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--kernels-optional", action="store_true", help="a platform's wheel may have none"
    )
    asked = parser.parse_args(arguments)
    failed = 0
    for file in asked.files:
        if file.suffix == ".whl":
            found = list(faults_of_wheel(file, ROOT, kernels_optional=asked.kernels_optional))
        else:
            found = list(faults_of_source(file, ROOT))
        print(f"{file.name}: {'as it should be' if not found else ''}")
        for fault in found:
            print(f"  {fault}")
        failed += bool(found)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
