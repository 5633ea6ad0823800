"""The C sources: every header stands on its own, and the README's picture of them is true."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import pyentmax
from pyentmax.engine.backends import gufuncs

ROOT = Path(__file__).parents[2]
PACKAGE = Path(str(pyentmax.__file__)).parent
SOURCES = ROOT / "cython_ext"
README = (SOURCES / "README.md").read_text()
# These are included for what they do to the text around them; on their own they mean nothing.
TABLE, TYPES, TARGET = "kernels.h", "float_and_double.h", "builds/target.h"

COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
PYTHON_HEADERS = sysconfig.get_path("include")


def files() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*") if path.suffix in (".c", ".h", ".pyx"))


def name(path: Path) -> str:
    return path.relative_to(SOURCES).as_posix()


TEXTS = {name(path): path.read_text() for path in files()}
HEADERS = [file for file in TEXTS if file.endswith(".h")]
ALONE = [header for header in HEADERS if header not in (TABLE, TYPES, TARGET)]
TEMPLATES = [header for header in HEADERS if f'#include "{TYPES}"\n\n' in TEXTS[header]]


def includes(file: str) -> set[str]:
    """The headers of ours that a file includes, `TYPES` aside, by their path below cython_ext."""
    return set(re.findall(r'^(?:#include|cdef extern from) "(.+)"', TEXTS[file], re.M)) - {TYPES}


def check_syntax(text: str, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    """What a compiler says about a translation unit."""
    if shutil.which(COMPILER) is None or not Path(PYTHON_HEADERS, "Python.h").exists():
        pytest.skip("needs a C compiler and the headers of Python")
    folders = [f"-I{folder}" for folder in (SOURCES, PYTHON_HEADERS, np.get_include())]
    command = [COMPILER, "-fsyntax-only", "-std=c11", "-Wall", "-Werror", "-Wno-unused", *flags]
    return subprocess.run(
        [*command, *folders, "-x", "c", "-"], input=text, text=True, capture_output=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("header", ALONE)
def test_every_header_compiles_on_its_own(header):
    table = "-DKERNELS=kernels"  # what builds/table.h calls what it defines
    done = check_syntax(f'#include "{header}"\n', table)
    assert done.returncode == 0, done.stderr


def test_the_stand_ins_for_headers_of_python_and_numpy_hold_what_the_kernels_use():
    """So that a host without the cross compiler sees what would break under it."""
    stand_ins = Path(__file__).parent / "aarch64"
    runner = (stand_ins / "runner.c").read_text()
    done = check_syntax(f'{runner}\n#include "builds/table.h"\n', "-DKERNELS=k", "-I", stand_ins)
    assert done.returncode == 0, done.stderr


def test_a_compiler_without_vector_types_is_told_so():
    done = check_syntax('#undef __GNUC__\n#undef __clang__\n#include "rows/sizes.h"\n')
    assert done.returncode != 0
    assert "vector types of GCC or Clang" in done.stderr


def test_no_array_has_an_unknown_size():
    done = check_syntax('#include "builds/table.h"\n', "-DKERNELS=kernels", "-Werror=vla")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("header", TEMPLATES)
def test_a_template_includes_itself(header):
    assert re.findall(r'#define TEMPLATE "(.+)"', TEXTS[header]) == [header]
    assert "#elif defined(REAL)\n" in TEXTS[header]


def test_every_kernel_is_in_the_table_and_every_header_is_used():
    with_rows = {header for header in HEADERS if "#elif defined(KERNEL_TABLE)" in TEXTS[header]}
    assert with_rows == includes(TABLE)
    assert {TYPES}.union(*map(includes, TEXTS)) == set(HEADERS)


def test_block_sizes_agree_with_kernels():
    for name in ("BLOCK", "SHORT"):
        found = re.findall(rf"^    {name} = (\d+),", TEXTS["rows/sizes.h"], re.M)
        assert found == [str(getattr(gufuncs, name))]


def place(file: str) -> str:
    """Where a file belongs in the README's picture: its folder, or itself."""
    return file.partition("/")[0]


def test_the_readme_shows_what_includes_what():
    (graph,) = re.findall(r"```mermaid\ngraph TD\n(.+?)```", README, re.DOTALL)
    shown = set()
    for line in graph.splitlines():
        one, _, others = line.strip().partition(" --> ")
        shown |= {(one, other) for other in others.split(" & ") if other}
    edges = {(place(file), place(header)) for file in TEXTS for header in includes(file)}
    assert shown == {(one, other) for one, other in edges if one != other}


def test_the_readme_lists_every_file():
    listed = set()
    for folder, headers in re.findall(r"^\|([^|]*)\|([^|]*)\|[^|]*\|$", README, re.M)[2:]:
        for file in re.findall("`(.+?)`", headers):
            listed.add("/".join([*re.findall("`(.+?)`", folder), file]))
    assert listed == {file.removesuffix(".h") for file in TEXTS} - {"_cpu.pyx"}


def test_every_file_named_in_a_comment_exists():
    for file, text in [*TEXTS.items(), ("README.md", README)]:
        for other in re.findall(r"\b(?:pyentmax|tests|benchmarks)/[\w/]+\.(?:py|cu)\b", text):
            # An installed package may lie elsewhere than the tests.
            top = PACKAGE.parent if other.startswith("pyentmax/") else ROOT
            assert (top / other).exists(), f"{file} names {other}"


def test_numbers_out_of_range_overflow_no_signed_integer(tmp_path):
    """Logarithms and powers of what is chosen away afterwards are computed all the same."""
    program = """
        #include <stdio.h>
        #include "elementary/exp.h"
        #include "elementary/log.h"
        int main(void) {
            const double odd[] = {
                NAN, -NAN, INFINITY, -INFINITY, 0, -0.0, -1, -1e-300, 5e-324, 1e308};
            volatile double sum = 0;
            for (int i = 0; i < 10; i++) {
                sum += log_of_f64(odd[i]) + log2_of_f64(odd[i]) + exp2_of_f64(odd[i]);
                sum += scaled_exp_f64(odd[i]) + scaled_exp2_f64(odd[i]);
                const float x = (float)odd[i];
                sum += log_of_f32(x) + log2_of_f32(x) + exp2_of_f32(x);
                sum += scaled_exp_f32(x) + scaled_exp2_f32(x);
            }
            return 0;
        }"""
    flags = ["-std=c11", "-w", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
    if shutil.which(COMPILER) is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "odd.c").write_text(program)
    command = [
        COMPILER,
        *flags,
        f"-I{SOURCES}",
        str(tmp_path / "odd.c"),
        "-o",
        str(tmp_path / "odd"),
    ]
    built = subprocess.run([*command, "-lm"], text=True, capture_output=True)
    if built.returncode:
        pytest.skip("needs a compiler with UndefinedBehaviorSanitizer")
    done = subprocess.run([str(tmp_path / "odd")], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:mpmath")
def test_coefficients_are_what_their_script_prints():
    pytest.importorskip("mpmath")
    script = runpy.run_path(str(ROOT / "tools" / "kernel_coefficients.py"))
    text = TEXTS["elementary/exp.h"] + TEXTS["elementary/log.h"]
    held = [float(x) for x in re.findall(r"\d+\.\d{6,}(?:e-?\d+)?", text)]  # no signs: "- 0.24"
    for meaning, (coefficients, _) in script["polynomials"]().items():
        missing = [x for x in coefficients if not any(abs(abs(x) / h - 1) < 1e-15 for h in held)]
        assert not missing, meaning


@pytest.mark.slow
def test_the_readmes_kernel_compiles(tmp_path):
    (code,) = re.findall(r"```c\n(.+?)```", README, re.DOTALL)
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "window.h").write_text(code)
    done = check_syntax('#include "mappings/window.h"\n', f"-I{tmp_path}")
    assert done.returncode == 0, done.stderr
