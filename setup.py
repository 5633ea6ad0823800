"""The compiled part of pyentmax; everything else about the package is in setup.cfg.

Three environment variables steer the build:

- ``PYENTMAX_REQUIRE_EXT=1``: a kernel that does not compile is an error (the Makefile sets it);
- ``PYENTMAX_NO_EXT=1``: compile nothing, on purpose;
- ``PYENTMAX_SANITIZE=1``: add AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize`).

With none of them a failed build leaves a package that works in pure NumPy, and a warning.
"""

import os
import sys
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def wanted(variable):
    return os.environ.get(variable, "") not in ("", "0")


REQUIRED = wanted("PYENTMAX_REQUIRE_EXT")
# Nothing machine-specific: a wheel must run on every machine of its platform;
# cython_ext/builds/target.h says how the kernels still use what they find. Neither errno nor
# floating-point traps are looked at, and saying so lets sqrt and conditionals become vector
# instructions; no result changes. Contraction into fused multiply-adds would change some. Loops
# over the lanes of a vector must reach the vectoriser as loops: GCC would write out those of up to
# 16 turns before.
FLAGS = (
    []
    if os.name == "nt"
    else [
        "-O3",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-ffp-contract=off",
        "--param=max-completely-peel-times=15",
    ]
)
SANITIZE = [
    "-g",
    "-O1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
]

WARNING = """
{line}
pyentmax was installed WITHOUT its compiled kernels: all functions work, in pure NumPy, but slower.
What went wrong: {reason}
To compile them, install a C compiler and the Python headers (Debian: gcc, python3-dev) and install
again; PYENTMAX_REQUIRE_EXT=1 makes a failed build an error, PYENTMAX_NO_EXT=1 skips it silently.
pyentmax.show_config() tells what a given installation runs.
{line}
"""


class OptionalBuildExt(build_ext):
    """Compile the kernels, or explain why the package goes without them."""

    def run(self):
        try:
            super().run()
        except Exception as error:  # no usable compiler: the exceptions differ by platform
            self.go_without(error)

    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        except Exception as error:
            self.go_without(error)

    def go_without(self, error):
        if REQUIRED:
            raise error
        print(WARNING.format(line="*" * 98, reason=error), file=sys.stderr)


def kernels():
    if wanted("PYENTMAX_NO_EXT"):
        return []
    try:
        import numpy
        from Cython.Build import cythonize
    except ImportError as error:
        if REQUIRED:
            raise
        print(WARNING.format(line="*" * 98, reason=error), file=sys.stderr)
        return []
    flags = FLAGS + (SANITIZE if wanted("PYENTMAX_SANITIZE") else [])
    extension = Extension(
        "pyentmax._cpu",
        sources=["cython_ext/_cpu.pyx", *sorted(glob("cython_ext/**/*.c", recursive=True))],
        depends=sorted(glob("cython_ext/**/*.h", recursive=True)),
        include_dirs=["cython_ext", numpy.get_include()],
        define_macros=[
            ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
            ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
            ("BUILD_FLAGS", '"{}"'.format(" ".join(flags) or "default flags")),
        ],
        extra_compile_args=flags,
        extra_link_args=SANITIZE if wanted("PYENTMAX_SANITIZE") else [],
    )
    [extension] = cythonize([extension], build_dir="build/cython")
    # An in-place build then does not look for the missing file. Set here, since cythonize drops it.
    extension.optional = not REQUIRED
    return [extension]


setup(ext_modules=kernels(), cmdclass={"build_ext": OptionalBuildExt})
