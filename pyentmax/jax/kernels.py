"""The library's compiled kernels inside XLA's programs for a processor.

A kernel is called where the program is for one CPU device and stays in this process. Any other, on
a GPU, over several devices, or exported, has the JAX body of the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from pyentmax.engine.backends.choice import kernels, xla_handler

TARGET = "pyentmax_rows"


def _registered() -> bool:
    """Whether XLA takes the handler; one of another version of its interface it refuses."""
    handler = xla_handler()
    if handler is None:
        return False
    try:
        jax.ffi.register_ffi_target(TARGET, handler, platform="cpu")
    except Exception:
        return False
    return True


_REGISTERED = _registered()


def with_kernel(
    body: Callable[..., jax.Array],
    name: str,
    serves: Callable[..., jax.Array] | None = None,
    *,
    linear: bool = False,
) -> Callable[..., jax.Array]:
    """A function of rows (…, d) and parameters (…, 1): the kernel of that name, or the body.

    ``serves(parameter)`` says, while a program runs, whether the kernel knows them all. A function
    ``f(p, v, …)`` that is `linear` and symmetric in v has derivatives, those in others the body's.
    Any other has none: `jax.custom_jvp` around it gives them.
    """
    primitive = Primitive(f"pyentmax_{name}")
    primitive.def_impl(body)
    primitive.def_abstract_eval(lambda *operands: operands[linear])
    if linear:
        _make_linear(primitive, body)

    def kernel(*operands: jax.Array) -> jax.Array:
        x = operands[0]
        call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(x.shape, x.dtype))
        compiled = partial(call, kernel=name)
        if serves is None:
            return compiled(*operands)
        return jax.lax.cond(serves(operands[-1]), compiled, body, *operands)

    in_jax, in_c = (mlir.lower_fun(f, multiple_results=False) for f in (body, kernel))
    mlir.register_lowering(primitive, in_jax)

    def on_cpu(ctx: Any, *operands: Any) -> Any:
        module = ctx.module_context
        several = getattr(module.axis_context, "num_devices", None) != 1
        # On an explicit mesh, even of one device, the branches of a condition would differ.
        explicit = not ctx.avals_in[0].sharding.mesh.empty
        if several or explicit or module.lowering_parameters.for_export:
            return in_jax(ctx, *operands)
        return in_c(ctx, *operands)

    if _REGISTERED and name in kernels():
        mlir.register_lowering(primitive, on_cpu, platform="cpu")

    def batched(operands: Any, axes: Any) -> Any:
        size = next(x.shape[i] for x, i in zip(operands, axes, strict=True) if i is not None)
        each = [
            jnp.broadcast_to(x, (size, *x.shape)) if i is None else jnp.moveaxis(x, i, 0)
            for x, i in zip(operands, axes, strict=True)
        ]
        return primitive.bind(*each), 0

    batching.primitive_batchers[primitive] = batched
    return primitive.bind


def _make_linear(primitive: Primitive, body: Callable[..., jax.Array]) -> None:
    """Give f(p, v, …), which is linear in v by a symmetric matrix, its derivatives."""

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

    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose
