/* Sparsemax, and its Jacobian times a vector. The NumPy twin is pyentmax/reference/mappings/sparsemax.py;
 * kernels and their arguments: forward.cuh and derivatives.cuh.
 */
#include "separable.cuh"
#include "sparsemax.cuh"

/* Also, with bounds, constrained sparsemax's. */
template <typename C> struct SparsemaxCurvature : RisingCurvature<C> {
    using RisingCurvature<C>::RisingCurvature;
    __device__ C s(C p) const { return p > 0 ? (C)1 : p; }
    __device__ C relative(C p, C) const { return s(p); }
};
template <typename C> using SparsemaxJvp = Product<C, SparsemaxCurvature<C>>;
