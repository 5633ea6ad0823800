# cython: language_level=3, freethreading_compatible=True
"""Compiled twins of `pyentmax.mappings`, as NumPy generalised ufuncs. Private: call the public names.

A function here takes the scores and a boolean mask, both with the row as core dimension, broadcast like
any ufunc and know `axis=` and `out=`. A mask broadcast with stride 0 costs nothing. What the
contracts add on top (tuple axes, half precision, checks) is the wrapper's part.
"""
cimport numpy as cnp

cnp.import_array()
cnp.import_umath()


cdef extern from "kernels.h":
    ctypedef void inner_loop(char **, const Py_ssize_t *, const Py_ssize_t *, void *) noexcept nogil
    inner_loop entmax15_loop_f32, entmax15_loop_f64
    inner_loop entmax15_jvp_loop_f32, entmax15_jvp_loop_f64
    const char *INSTRUCTION_SET_ "INSTRUCTION_SET"
    const char *COMPILER
    const char *BUILD_FLAGS

INSTRUCTION_SET = INSTRUCTION_SET_.decode()
BUILD_INFO = f"{COMPILER.decode()}, {BUILD_FLAGS.decode()}"

# NumPy keeps pointers to these tables, so they live as long as the module.
cdef void *no_data[2]
no_data[:] = [NULL, NULL]

cdef char scores_and_mask[6]
scores_and_mask[:] = [
    cnp.NPY_FLOAT, cnp.NPY_BOOL, cnp.NPY_FLOAT,
    cnp.NPY_DOUBLE, cnp.NPY_BOOL, cnp.NPY_DOUBLE,
]
cdef char two_reals[6]
two_reals[:] = [
    cnp.NPY_FLOAT, cnp.NPY_FLOAT, cnp.NPY_FLOAT,
    cnp.NPY_DOUBLE, cnp.NPY_DOUBLE, cnp.NPY_DOUBLE,
]

cdef cnp.PyUFuncGenericFunction entmax15_loops[2]
entmax15_loops[:] = [
    <cnp.PyUFuncGenericFunction>entmax15_loop_f32, <cnp.PyUFuncGenericFunction>entmax15_loop_f64
]
entmax15 = cnp.PyUFunc_FromFuncAndDataAndSignature(
    entmax15_loops, no_data, scores_and_mask, 2, 2, 1, cnp.PyUFunc_None,
    "entmax15", "Scores and mask to probabilities of 1.5-entmax.", 0, "(n),(n)->(n)",
)

cdef cnp.PyUFuncGenericFunction entmax15_jvp_loops[2]
entmax15_jvp_loops[:] = [
    <cnp.PyUFuncGenericFunction>entmax15_jvp_loop_f32,
    <cnp.PyUFuncGenericFunction>entmax15_jvp_loop_f64,
]
entmax15_jvp = cnp.PyUFunc_FromFuncAndDataAndSignature(
    entmax15_jvp_loops, no_data, two_reals, 2, 2, 1, cnp.PyUFunc_None,
    "entmax15_jvp", "Jacobian of 1.5-entmax at probabilities p, times v.", 0, "(n),(n)->(n)",
)
