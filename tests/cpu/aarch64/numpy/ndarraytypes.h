/* Stands in for NumPy's header: type numbers, which the tables of kernels hold and nobody here
 * reads. */
#ifndef STAND_IN_NDARRAYTYPES_H
#define STAND_IN_NDARRAYTYPES_H

enum { NPY_BOOL, NPY_INT8, NPY_INT32, NPY_INT64, NPY_FLOAT, NPY_DOUBLE };

#endif
