"""The mappings of rows (…, d) by `pyentmax.reference.composed`, with their derivatives.

The rules for derivatives are written in p, whose own derivatives are these rules again: second
derivatives come by applying them twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from pyentmax.jax import namespace as xp
from pyentmax.jax.symmetric import symmetric_product
from pyentmax.reference.composed import mappings
from pyentmax.reference.composed.mappings import ALPHAS


def name_for(alpha: Any) -> str:
    """The name in `ROWS` for α-entmax: a closed form only if α is a number that has one."""
    if type(alpha) not in (int, float):
        return "entmax"
    return _CLOSED.get(alpha, "entmax")


def _mapping(
    name: str,
    product: Callable[..., jax.Array],
    slope: Callable[..., jax.Array],
    solve: Callable[..., jax.Array] = mappings.mapping,
) -> Callable[..., jax.Array]:
    """A mapping of rows and perhaps a parameter of each, or log p, given its derivatives.

    A row with nothing left is zeros, one with NaN or +∞ is NaN. Compiled once per shape and dtype,
    outside `jax.jit` too: a loop would otherwise be compiled at every call, for its functions are
    new ones.
    """

    @jax.custom_jvp
    @jax.jit
    def forward(z: jax.Array, *parameters: jax.Array) -> jax.Array:
        return solve(xp, z, name, *parameters)

    def rule(primals: Any, tangents: Any) -> Any:
        p, alpha = forward(*primals), primals[1:] if name == "entmax" else ()
        moved = []  # what is not differentiated is not computed
        if type(tangents[0]) is not SymbolicZero:
            moved.append(product(p, tangents[0], *alpha))
        if alpha and type(tangents[1]) is not SymbolicZero:
            moved.append(slope(p, *alpha) * tangents[1])
        return p, sum(moved[1:], start=moved[0] if moved else jnp.zeros_like(p))

    forward.defjvp(rule, symbolic_zeros=True)
    return forward


def _product(alpha: float | None) -> Callable[..., jax.Array]:
    """J v at the output p of mappings with the same α, or with one in each row."""

    def body(p: jax.Array, v: jax.Array, *parameters: jax.Array) -> jax.Array:
        return mappings.product(xp, p, v, *parameters, *(() if alpha is None else (alpha,)))

    return symmetric_product(body)


@jax.jit
def grad_alpha(p: jax.Array, alpha: jax.Array) -> jax.Array:
    return mappings.grad_alpha(xp, p, alpha)


def _log_product(alpha: float | None) -> Callable[..., jax.Array]:
    """The change of log p in a direction of the scores, NaN where log p is."""

    @jax.jit
    def product(log_p: jax.Array, v: jax.Array, *parameters: jax.Array) -> jax.Array:
        of = parameters if alpha is None else (alpha,)
        wrong = jnp.isnan(log_p)
        moved = mappings.log_jvp(xp, jnp.where(wrong, -jnp.inf, log_p), v, *of)
        return moved + jnp.where(wrong, log_p, 0) * jnp.where(wrong, v, 0)

    return product


@jax.jit
def _log_grad_alpha(log_p: jax.Array, alpha: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(log_p), log_p, mappings.log_grad_alpha(xp, log_p, alpha))


_CLOSED = {1.0: "softmax", 1.5: "entmax15", 2.0: "sparsemax"}
_PRODUCTS = {alpha: _product(alpha) for alpha in _CLOSED}
ROWS = {name: _mapping(name, _PRODUCTS[alpha], grad_alpha) for name, alpha in ALPHAS.items()}
ROWS["entmax"] = _mapping("entmax", _product(None), grad_alpha)
LOGS = {
    name: _mapping(name, _log_product(ALPHAS.get(name)), _log_grad_alpha, mappings.log_mapping)
    for name in (*_CLOSED.values(), "entmax")
}
