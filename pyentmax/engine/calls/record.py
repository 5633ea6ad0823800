"""The record of a mapping: its functions and what holds of them, in one frozen object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mapping:
    """Everything that generic code (losses, autograd, checks, tests) needs of a mapping.

    Parameters named in `parameters` follow the array arguments of every function, in order. In a
    `dataclasses.replace` with another forward or Ω, set the functions from `vjps` on that no longer
    hold to None: generic code does without them.

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
    parameter_vjp : ``(p, g, *params, axis=-1, *, mask=None)`` -> Σ g ∘ ∂p/∂param, param's shape
        for a mapping with one parameter; None where there is no derivative in it
    parameter_vjp_takes_scores : bool
        the scores z follow the parameters in `parameter_vjp`, since p does not tell all
    vjps : as `vjp` -> (Jᵀ v, what `parameter_vjp` gives)
        both, at less cost than one after the other; None where there is no such function
    conjugate : ``conjugate(z, p, *params)`` -> Ω*(z), shape batch, of rows whose largest z is 0
        None where p·z − Ω(p) loses no digits
    log : as `forward` -> log p
        finite wherever the mapping gives probability; None where there is no such function
    loss, loss_and_grad : ``(z, y, *params, axis=-1, **options)``
        the mapping's own Fenchel-Young loss, and the loss with its gradient; None where the generic
        one has to do
    doubtful : ``doubtful(z, on, *params)`` -> `pyentmax.reference.thresholds.proof.Doubt` or None
        which of the entries off the support ``on``, as found, are not proved to be off it, for rows
        on the host and numbers as parameters; None where the mapping's zeros cannot be proved
    textbook, textbook_jacobian, textbook_loss : functions of one vector
        as the paper prints them: ``(z, *params)``, ``(p, *params)``, ``(z, y, *params)``
    sparse : bool
        can give exact zeros
    on_simplex : bool
        p ≥ 0 and Σp = 1
    shift_invariant : bool
        adding a constant to z changes nothing, so J1 = 0
    permutation_equivariant : bool
    symmetric : bool
        J = Jᵀ, so that the VJP is the JVP
    omega_at_vertices : float or None
        Ω(e_y) where it is the same for every vertex, else None
    support_alpha : float or None
        the α whose entmax has the same Jacobian at p on the support: 1 for softmax of some entries,
        2 for sparsemax of some. None where there is no such α, or it is a parameter
    of_largest : str or None
        the mapping that a row's k largest scores go through, of one that gives the others nothing
    omega_takes_mask : bool
        Ω depends on which entries there are, and omega takes mask= as the mapping does
    one_axis : bool
        the order of a row's entries matters, which those of several axes do not have
    """

    name: str
    forward: Callable[..., Any]
    support: Callable[..., Any]
    jvp: Callable[..., Any]
    vjp: Callable[..., Any]
    jacobian: Callable[..., Any]
    omega: Callable[..., Any] | None
    parameters: tuple[str, ...] = ()
    parameter_vjp: Callable[..., Any] | None = None
    parameter_vjp_takes_scores: bool = False
    sparse: bool = True
    on_simplex: bool = True
    shift_invariant: bool = True
    permutation_equivariant: bool = True
    symmetric: bool = True
    omega_at_vertices: float | None = None
    support_alpha: float | None = None
    of_largest: str | None = None
    omega_takes_mask: bool = False
    one_axis: bool = False
    vjps: Callable[..., Any] | None = None
    conjugate: Callable[..., Any] | None = None
    log: Callable[..., Any] | None = None
    loss: Callable[..., Any] | None = None
    loss_and_grad: Callable[..., Any] | None = None
    doubtful: Callable[..., Any] | None = None
    textbook: Callable[..., Any] | None = None
    textbook_jacobian: Callable[..., Any] | None = None
    textbook_loss: Callable[..., Any] | None = None


def record_from(mapping: Any, parameter_vjp: Any = None) -> Mapping:
    """The record of a mapping that is an object, for code that still asks for one."""

    def defined(function: Any) -> Any:
        return function if function.is_defined else None

    facts = ("sparse", "on_simplex", "shift_invariant", "permutation_equivariant", "symmetric",
             "omega_at_vertices", "support_alpha", "of_largest", "one_axis", "conjugate",
             "doubtful", "textbook")  # fmt: skip
    return Mapping(
        name=mapping.name,
        forward=mapping,
        support=mapping.support,
        jvp=mapping.jvp,
        vjp=mapping.vjp,
        jacobian=mapping.jacobian,
        omega=defined(mapping.regularizer),
        parameters=mapping.parameters,
        parameter_vjp=parameter_vjp or defined(mapping.parameter_vjp),
        parameter_vjp_takes_scores=mapping.parameter_vjp.with_scores,
        omega_takes_mask=mapping.regularizer.with_mask,
        vjps=defined(mapping.vjps),
        log=defined(mapping.log),
        loss=defined(mapping.loss),
        loss_and_grad=defined(mapping.loss_and_grad),
        textbook_jacobian=mapping.jacobian.textbook,
        textbook_loss=mapping.loss.textbook,
        **{name: getattr(mapping, name) for name in facts},
    )
