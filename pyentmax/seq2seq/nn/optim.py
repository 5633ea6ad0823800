"""Optimisers over a flat dict of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyentmax.engine.backends.choice import writes_out
from pyentmax.seq2seq.autograd.tensor import Array
from pyentmax.seq2seq.nn.initializers import Parameters


def global_norm(gradients: Parameters) -> Any:
    """The Euclidean norm of all gradients together, as a scalar.

    Examples
    --------
    >>> float(global_norm({"w": np.array([[3.0]]), "b": np.array([4.0])}))
    5.0
    """
    squares = [(g.ravel() @ g.ravel()).astype(np.float64) for g in gradients.values()]
    return np.sqrt(sum(squares[1:], squares[0]))


def clip_gradients(gradients: Parameters, max_norm: float) -> Any:
    """Scale all gradients, in place, so that their global norm is at most ``max_norm``.

    Returns the norm before clipping (Pascanu et al. 2013).

    Examples
    --------
    >>> gradients = {"w": np.array([3.0, 4.0])}
    >>> float(clip_gradients(gradients, 1.0)), gradients["w"]
    (5.0, array([0.6, 0.8]))
    """
    norm = global_norm(gradients)
    if norm > max_norm:
        scale = max_norm / norm
        for g in gradients.values():
            g *= scale.astype(g.dtype)
    return norm


@writes_out
def adam_step(
    x: Array,
    m: Array,
    v: Array,
    g: Array,
    step_size: float,
    eps: float,
    beta1: float,
    beta2: float,
    *,
    out: tuple[Array, Array, Array],
) -> None:
    """One step of one parameter: m, v and then x as in :class:`Adam`, without bias correction.

    ``out`` must be (x, m, v) themselves, and the body overwrites g as scratch space. The compiled
    twin reads and writes everything once.
    """
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    g *= g
    g *= 1 - beta2
    v += g
    np.sqrt(v, out=g)
    g += eps
    np.divide(m, g, out=g)
    g *= step_size
    x -= g


class Adam:
    """Adam (Kingma & Ba 2015): steps scaled by running estimates of the gradient's two moments.

        m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
        x ← x − rate · m̂ / (√v̂ + ε),     m̂ = m/(1 − β₁ᵗ),  v̂ = v/(1 − β₂ᵗ)

    Parameters
    ----------
    params : dict of arrays
        Updated in place by :meth:`step`.
    betas : (float, float)
        Decay of the two moments.
    eps : float
        Keeps the division finite.

    Examples
    --------
    >>> params = {"w": np.array([1.0])}
    >>> optimizer = Adam(params)
    >>> optimizer.step({"w": np.array([0.5])}, rate=0.1)
    >>> params["w"].round(6)
    array([0.9])
    """

    def __init__(
        self, params: Parameters, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.params = params
        self.betas = betas
        self.eps = eps
        self.updates: int = 0
        self.factors: dict[str, float] = {}  # of the rate, by the name of a parameter
        self.first: Parameters = {k: np.zeros_like(x) for k, x in params.items()}
        self.second: Parameters = {k: np.zeros_like(x) for k, x in params.items()}

    def step(self, gradients: Parameters, rate: float) -> None:
        """Move every parameter that has a gradient; gradients are overwritten, as scratch space."""
        self.updates += 1
        beta1, beta2 = self.betas
        # The bias corrections are numbers, so they go into the step size and into ε:
        # m̂/(√v̂ + ε) = (√c₂/c₁) m/(√v + ε√c₂).
        c1, c2 = 1 - beta1**self.updates, 1 - beta2**self.updates
        step_size, eps = rate * math.sqrt(c2) / c1, self.eps * math.sqrt(c2)
        for name, g in gradients.items():
            x, m, v = self.params[name], self.first[name], self.second[name]
            size = step_size * self.factors.get(name, 1.0)
            adam_step(x, m, v, g, size, eps, beta1, beta2, out=(x, m, v))

    def state(self) -> dict[str, Any]:
        """Everything needed to continue: arrays under flat names."""
        first = {f"first.{k}": m for k, m in self.first.items()}
        second = {f"second.{k}": v for k, v in self.second.items()}
        return {"updates": self.updates} | first | second

    def load(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.updates = int(state["updates"])
        for k in self.params:
            self.first[k][...] = np.asarray(state[f"first.{k}"])
            self.second[k][...] = np.asarray(state[f"second.{k}"])
