"""The compiled part of pyentmax; all else about the package is in setup.cfg.

Four environment variables steer the build:

- ``PYENTMAX_REQUIRE_EXT=1``: a kernel that does not compile is an error (the Makefile sets it);
- ``PYENTMAX_NO_EXT=1``: compile nothing, on purpose;
- ``PYENTMAX_BUILDS=native``: of the builds for several instruction sets, compile the one that this
  machine runs. For builds in place, as the Makefile makes them, and with sanitizers; a wheel always
  has all;
- ``PYENTMAX_SANITIZE=1``: add AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`).

With none of them a failed build leaves a package that works in pure NumPy, and a warning.
"""

import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools"))
from distribution import ReproducibleSdist, links  # noqa: E402


def enabled(variable):
    return os.environ.get(variable, "") not in ("", "0")


REQUIRED = enabled("PYENTMAX_REQUIRE_EXT")
# Nothing machine-specific: a wheel must run on every machine of its platform;
# cython_ext/builds/target.h says how the kernels still use the instructions of a machine. The code
# uses neither errno nor floating-point traps; with these flags sqrt and conditionals become vector
# instructions. Multiplications are fused with additions where the target can.
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
# Undo what CFLAGS, which come before, may allow: sums in another order, no NaN. For the linker as
# well: with -ffast-math it may make the whole process flush small numbers to 0.
STRICT = [
    "-fno-fast-math",
    "-fno-unsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fno-finite-math-only",
    "-fsigned-zeros",
]
# GCC's own. It would unroll loops over the lanes of a vector, of up to 16 iterations, before its
# vectoriser sees them. Copies of loops for special cases take a fifth of the time to compile and a
# tenth of the module, and no kernel is measurably faster for them.
GCC_FLAGS = [
    "--param=max-completely-peel-times=15",
    "-fno-ipa-cp-clone",
    "-fno-split-loops",
    "-fno-unswitch-loops",
    "-fno-version-loops-for-strides",
    "-fno-loop-unroll-and-jam",
    "-fno-loop-interchange",
]
# On x86-64 few machines run the baseline, those without AVX2: there a call takes up to 1.5 times as
# long (products of Jacobians: 1.8 to 3.5), for half of the time to compile and two thirds of the
# code.
RARE_FLAGS = ["-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic"]
# No debugging symbols, which some Pythons request: they would name the folder of the build.
LINK_FLAGS = ["-Wl,-S"]
# On x86-64: the builds in cython_ext/builds, the fastest first, and the macros of the compiler that
# say that a machine runs them.
BUILDS = {
    "x86_64_v4": {"__AVX512F__", "__AVX512BW__", "__AVX512CD__", "__AVX512DQ__", "__AVX512VL__"},
    "x86_64_v3": {"__AVX2__", "__FMA__", "__BMI2__"},
    "baseline": set(),
}
SANITIZE = [
    "-g1",  # lines for the reports; all that a debugger would want takes a fifth longer
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
]

WARNING = """
{line}
pyentmax was installed WITHOUT its compiled kernels: all functions work, in pure NumPy, but slower.
What went wrong: {reason}
To compile them, install GCC or Clang and the Python headers (Debian: gcc, python3-dev; macOS:
xcode-select --install) and install again; MSVC lacks the vector types that they are written with;
PYENTMAX_REQUIRE_EXT=1 makes a failed build an error, PYENTMAX_NO_EXT=1 skips it silently.
pyentmax.show_config() tells what a given installation runs.
{line}
"""


def side_by_side(compile_all, rare_flags):
    """Compile one file per processor at once, where setuptools compiles them one by one."""

    def compile_one(source, extra_postargs=None, **how):
        flags = rare_flags if "baseline" in source else []
        return compile_all([source], extra_postargs=[*(extra_postargs or []), *flags], **how)

    def compile_each(sources, **how):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = pool.map(lambda source: compile_one(source, **how), sources)
            return [file for files in objects for file in files]

    return compile_each


def predefined(compiler, *flags):
    """The names of the macros that a compiler predefines; none if it cannot say."""
    try:
        command = [*compiler.compiler, *flags, "-dM", "-E", "-x", "c", os.devnull]
        macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (AttributeError, OSError, subprocess.CalledProcessError):
        return set()
    return {line.split()[1] for line in macros.splitlines() if line.startswith("#define ")}


class OptionalBuildExt(build_ext):
    """Compile the kernels, or explain why the package goes without them."""

    def finalize_options(self):
        super().finalize_options()
        apart = self.inplace or enabled("PYENTMAX_SANITIZE")  # from what a wheel takes
        self.native = apart and os.environ.get("PYENTMAX_BUILDS", "") == "native"

    def run(self):
        try:
            super().run()
        except Exception as error:  # no usable compiler: the exceptions differ by platform
            self.go_without(error)

    def copy_extensions_to_source(self):
        self.force = True  # over a newer one, which has other builds
        super().copy_extensions_to_source()

    def build_extension(self, ext):
        ext.extra_compile_args, ext.extra_link_args = self.flags()
        told = '"{}"'.format(" ".join(ext.extra_compile_args))
        ext.define_macros = [*ext.define_macros, ("BUILD_FLAGS", told)]
        if self.native:
            native = self.native_build()
            left_out = BUILDS.keys() - {native}
            ext.sources = [s for s in ext.sources if not any(name in s for name in left_out)]
            ext.define_macros += [(f"WITHOUT_{name.upper()}", None) for name in sorted(left_out)]
            if not enabled("PYENTMAX_SANITIZE"):  # whose folders make names
                self.build_lib, self.build_temp = f"build/{native}/lib", f"build/{native}/temp"
        if self.compiler.compiler_type == "unix":
            rare = self.plat_name.endswith("x86_64") and ext.extra_compile_args[-1] == GCC_FLAGS[-1]
            self.compiler.compile = side_by_side(self.compiler.compile, RARE_FLAGS if rare else [])
        try:
            super().build_extension(ext)
            if self.plat_name.endswith(platform.machine()) and not enabled("PYENTMAX_SANITIZE"):
                self.check_import(ext)
        except Exception as error:
            self.go_without(error)

    def check_import(self, ext):
        """Raise what Python says if it cannot import the module, and remove that."""
        name, path = ext.name.rpartition(".")[2], self.get_ext_fullpath(ext.name)
        load = (
            "import sys; from importlib import util\n"
            "spec = util.spec_from_file_location(*sys.argv[1:])\n"
            "spec.loader.exec_module(util.module_from_spec(spec))"
        )
        command = [sys.executable, "-c", load, name, os.path.abspath(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            os.remove(path)
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise RuntimeError(f"{path} cannot be imported: {lines[-1]}")

    def flags(self):
        """For the compiler, and for the linker."""
        if self.compiler.compiler_type == "msvc":
            return ["/std:c11", "/O2"], []
        if enabled("PYENTMAX_SANITIZE"):
            return STRICT + FLAGS + SANITIZE, STRICT + SANITIZE
        return STRICT + FLAGS + (GCC_FLAGS if self.is_gcc() else []), STRICT + LINK_FLAGS

    def is_gcc(self):
        """Is the compiler GCC, perhaps behind ccache? Clang takes other flags, under any name."""
        others = {"__clang__", "__INTEL_COMPILER", "__NVCOMPILER"}  # which define __GNUC__, too
        macros = predefined(self.compiler)
        return "__GNUC__" in macros and not others & macros

    def native_build(self):
        """The fastest of the builds that this machine runs."""
        macros = predefined(self.compiler, "-march=native")
        return next(name for name, needed in BUILDS.items() if needed <= macros)

    def go_without(self, error):
        if REQUIRED:
            raise error
        print(WARNING.format(line="*" * 98, reason=error), file=sys.stderr)


def name_files_without_folders(source):
    """Tracebacks name the files that Cython read, NumPy's by where it was: each build elsewhere."""
    with open(source, encoding="utf-8") as file:
        text = file.read()
    before, table, rest = re.split(r"(__pyx_f\[\] = \{[^}]*\})", text, maxsplit=1)
    bare = re.sub(r'"[^"]*[/\\]([^"]+)"', r'"\1"', table)
    if bare != table:
        with open(source, "w", encoding="utf-8") as file:
            file.write(before + bare + rest)


def kernels():
    if enabled("PYENTMAX_NO_EXT"):
        return []
    try:
        import numpy
        from Cython.Build import cythonize
    except ImportError as error:
        if REQUIRED:
            raise
        print(WARNING.format(line="*" * 98, reason=error), file=sys.stderr)
        return []
    extension = Extension(
        "pyentmax._cpu",
        sources=["cython_ext/_cpu.pyx", *sorted(glob("cython_ext/**/*.c", recursive=True))],
        depends=sorted(glob("cython_ext/**/*.h", recursive=True)),
        include_dirs=["cython_ext", numpy.get_include()],
        define_macros=[
            ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
            ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
        ],
    )
    [extension] = cythonize([extension], build_dir="build/cython", quiet=True)
    name_files_without_folders(extension.sources[0])
    # An in-place build then does not look for the missing file. Set here, since cythonize drops it.
    extension.optional = not REQUIRED
    return [extension]


setup(
    ext_modules=kernels(),
    cmdclass={"build_ext": OptionalBuildExt, "sdist": ReproducibleSdist},
    **links(),
)
