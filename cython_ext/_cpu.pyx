# cython: language_level=3, freethreading_compatible=True
"""The compiled kernels, as NumPy generalised ufuncs. Private: call the public functions.

A mapping takes scores and a boolean mask, both with the row as core dimension, and what else the
function of its name takes; Jacobian products, losses and the steps of training have signatures of
their own, which `help` shows. Like any ufunc, all of them broadcast and know `axis=` and `out=`,
and a mask broadcast with stride 0 costs nothing. They check no values: that, tuples of axes and
half precision are the callers' part.

The kernels were compiled for more than one instruction set, but in place by make; `BUILDS` has all
that run here, by instruction set and name, the fastest first. The functions of that one are also
the module's own, unless the environment variable ``PYENTMAX_INSTRUCTION_SET`` named another at
import: ``baseline``, or ``x86-64-v3``.

Nothing in this module changes after the import, and each call works in memory of its own. So
threads need no lock, and the module runs without the global interpreter lock.
"""
import os

cimport cython
cimport numpy as cnp

cnp.import_array()
cnp.import_umath()


cdef extern from "gufunc/kernel.h":
    ctypedef struct Kernel:
        const char *name
        const char *signature
        const char *doc
        int inputs, outputs
        char *types
        void **loops
        void **data
    ctypedef struct Build:
        const char *instruction_set
        const Kernel *kernels
    const Build *builds()
    const char *COMPILER
    const char *BUILD_FLAGS


cdef enum:
    STEP = 64


# NumPy keeps the pointers that it is given, into the C tables, which live as long as the module.
cdef object gufunc(const Kernel *kernel):
    return cnp.PyUFunc_FromFuncAndDataAndSignature(
        <cnp.PyUFuncGenericFunction *>kernel.loops, kernel.data, kernel.types,
        2, kernel.inputs, kernel.outputs, cnp.PyUFunc_None, kernel.name, kernel.doc, 0,
        kernel.signature,
    )


cdef dict gufuncs(const Kernel *kernel):
    found = {}
    while kernel.name != NULL:
        found[kernel.name.decode()] = gufunc(kernel)
        kernel += 1
    return found


cdef dict gufuncs_by_instruction_set(const Build *build):
    found = {}
    while build.instruction_set != NULL:
        found[build.instruction_set.decode()] = gufuncs(build.kernels)
        build += 1
    return found


def choose(wanted):
    """The instruction set to run: the fastest of `BUILDS`, or the one with that word in its name."""
    for name in BUILDS:
        if not wanted or wanted in name.split():
            return name
    if not BUILDS:
        raise ImportError("pyentmax._cpu was compiled for another machine (PYENTMAX_BUILDS=native)")
    raise ValueError(f"PYENTMAX_INSTRUCTION_SET must be empty or a word of {list(BUILDS)}, "
                     f"got {wanted!r}")


ctypedef fused real:
    float
    double


ctypedef fused index:
    cnp.int32_t
    cnp.int64_t


@cython.boundscheck(False)
@cython.wraparound(False)
def pack(const real[:, ::1] block, real[::1] values, index[::1] columns, cnp.int64_t[::1] ends,
         Py_ssize_t count):
    """Write the non-zeros of a block of rows behind the first `count`, and where each row ends.

    `values` and `columns` have room for the whole block. Returns the number of all written. Most of
    a row is zeros, which are passed over STEP at a time.
    """
    cdef Py_ssize_t n = block.shape[1], r, i, start, stop
    cdef const real *row
    cdef bint any_left
    with nogil:
        for r in range(block.shape[0]):
            row = &block[r, 0]
            start = 0
            while start < n:
                stop = min(start + STEP, n)
                any_left = False
                for i in range(start, stop):
                    any_left |= row[i] != 0
                if any_left:
                    for i in range(start, stop):  # without a branch, which no one could predict
                        values[count] = row[i]
                        columns[count] = <index>i
                        count += row[i] != 0
                start = stop
            ends[r] = count
    return count


BUILDS = gufuncs_by_instruction_set(builds())
INSTRUCTION_SET = choose(os.environ.get("PYENTMAX_INSTRUCTION_SET", ""))
BUILD_INFO = f"{COMPILER.decode()}, {BUILD_FLAGS.decode()}"
globals().update(BUILDS[INSTRUCTION_SET])
