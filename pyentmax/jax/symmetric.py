"""Products with symmetric matrices, each its own transpose, in derivatives of every order.

JAX would transpose the body's operations one by one, and so round away the digits that the body
keeps by its order of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir


def symmetric_product(body: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """``body(p, v, …)``, which is linear in v by a symmetric matrix of the other arguments."""
    primitive = Primitive("pyentmax_symmetric_product")
    primitive.def_impl(body)
    primitive.def_abstract_eval(lambda p, v, *rest: v)
    mlir.register_lowering(primitive, mlir.lower_fun(body, multiple_results=False))

    def jvp(primals: Any, tangents: Any) -> Any:
        p, v, *rest = primals
        in_p, in_v, *in_rest = tangents
        moved = []
        if type(in_v) is not ad.Zero:
            moved.append(primitive.bind(p, in_v, *rest))
        if any(type(x) is not ad.Zero for x in (in_p, *in_rest)):
            others = tuple(ad.instantiate_zeros(x) for x in (in_p, *in_rest))
            moved.append(jax.jvp(lambda p, *rest: body(p, v, *rest), (p, *rest), others)[1])
        return primitive.bind(*primals), sum(moved[1:], start=moved[0])

    def transpose(cotangent: Any, p: Any, _: Any, *rest: Any) -> Any:
        if type(cotangent) is not ad.Zero:
            cotangent = primitive.bind(p, cotangent, *rest)
        return None, cotangent, *(None for _ in rest)

    def batched(operands: Any, axes: Any) -> Any:
        size = next(x.shape[i] for x, i in zip(operands, axes, strict=True) if i is not None)
        each = [
            jnp.broadcast_to(x, (size, *x.shape)) if i is None else jnp.moveaxis(x, i, 0)
            for x, i in zip(operands, axes, strict=True)
        ]
        return primitive.bind(*each), 0

    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batched
    return jax.jit(primitive.bind)
