/* Stands in for NumPy's header: type numbers, which the tables of kernels hold and nobody here
 * reads. */
enum { NPY_BOOL, NPY_INT64, NPY_FLOAT, NPY_DOUBLE };
