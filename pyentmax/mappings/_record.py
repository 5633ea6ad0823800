"""The record of a mapping: its functions and what holds of it, in one frozen object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mapping:
    """Everything that generic code (losses, autograd, checks, tests) needs of a mapping.

    Parameters named in `parameters` follow the array arguments of every function, in order.

    Attributes
    ----------
    name : str
    forward : ``forward(z, *params, axis=-1, *, mask=None, out=None)`` -> p
    support : ``support(z, *params, axis=-1, *, mask=None)`` -> bool array
        where the mapping itself gives probability, whether or not a float can show it
    jvp, vjp : ``(p, v, *params, axis=-1, *, mask=None)`` -> J v, Jᵀ v
    jacobian : ``jacobian(p, *params, axis=-1)`` -> array of shape batch + (d, d)
    omega : ``omega(p, *params, axis=-1)`` -> Ω(p), shape batch; Ω is minus the entropy
        None where there is none, or none finite at every label; then it has no loss
    parameters : tuple of str
    sparse : bool
        can give exact zeros
    on_simplex : bool
        p ≥ 0 and Σp = 1
    shift_invariant : bool
        adding a constant to z changes nothing, so J1 = 0
    permutation_equivariant : bool
    symmetric : bool
        J = Jᵀ, so that the VJP is the JVP
    omega_vertices : float or None
        Ω(e_y) where it is the same for every vertex, else None
    omega_takes_mask : bool
        Ω depends on which entries there are, and omega takes mask= as the mapping does
    """

    name: str
    forward: Callable[..., Any]
    support: Callable[..., Any]
    jvp: Callable[..., Any]
    vjp: Callable[..., Any]
    jacobian: Callable[..., Any]
    omega: Callable[..., Any] | None
    parameters: tuple[str, ...] = ()
    sparse: bool = True
    on_simplex: bool = True
    shift_invariant: bool = True
    permutation_equivariant: bool = True
    symmetric: bool = True
    omega_vertices: float | None = None
    omega_takes_mask: bool = False
