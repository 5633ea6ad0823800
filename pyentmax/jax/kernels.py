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
from jax.interpreters import batching, mlir

from pyentmax.backends.choice import kernels, xla_handler

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
) -> Callable[..., jax.Array]:
    """A function of rows (…, d) and parameters (…, 1): the kernel of that name, or the body.

    ``serves(…)`` says of parameters, while a program runs, whether the kernel knows them all.
    It has no derivative: `jax.custom_jvp` around it gives one.
    """
    primitive = Primitive(f"pyentmax_{name}")
    primitive.def_impl(body)
    primitive.def_abstract_eval(lambda x, *parameters: x)

    def kernel(x: jax.Array, *parameters: jax.Array) -> jax.Array:
        call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(x.shape, x.dtype))
        compiled = partial(call, kernel=name)
        if serves is None:
            return compiled(x, *parameters)
        return jax.lax.cond(serves(*parameters), compiled, body, x, *parameters)

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
