"""The functions as modules: ``Entmax15(dim=-1)`` for ``entmax15``, ``Entmax15Loss()`` for its loss.

A parameter of a mapping may be a number, a tensor, which moves with the module, or an
``nn.Parameter``, which is learned. Tensors that change, as a mask, come with each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pyentmax.sparse_attention import DistanceBias
from pyentmax.torch import composed, mappings, one_vs_all
from pyentmax.torch.arguments import check_known
from pyentmax.torch.calls import ModuleOptions, apply
from pyentmax.torch.sparse_attention import attention, attention_parameter, check_settings

Value: TypeAlias = float | Tensor


class Settings(nn.Module):
    """A module with settings for a function, as its attributes."""

    __call__: Callable[..., Tensor]

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._names = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a setting that is a tensor is a buffer, which moves and is saved."""
        is_constant = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        if is_constant and name in self.__dict__ and name in self._names:
            delattr(self, name)
        if is_constant and name in self.__dict__.get("_names", ()) and not hasattr(self, name):
            self.register_buffer(name, value)
        else:
            super().__setattr__(name, value)

    def settings(self) -> dict[str, Any]:
        """The settings by their names."""
        return {name: getattr(self, name) for name in self._names}

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        shown = {name: x for name, x in self.settings().items() if not isinstance(x, Tensor)}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class MappingModule(Settings):
    """A function of scores."""

    dim: int
    function: Callable[..., Tensor]

    def __init__(self, dim: int = -1, **parameter: Value) -> None:
        super().__init__({**parameter, "dim": dim})

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of scores."""
        return self.function(z, mask=mask, **self.settings())


class LossModule(Settings):
    """A function of scores and targets, with the settings of a mapping and options of a loss."""

    dim: int
    function: Callable[..., Tensor]
    reduction: str
    ignore_index: int | None
    label_smoothing: float
    weight: Tensor | None

    def __init__(self, dim: int, options: ModuleOptions, **parameter: Value) -> None:
        defaults = ModuleOptions(
            reduction="mean", ignore_index=None, label_smoothing=0.0, weight=None
        )
        check_known(f"{type(self).__name__}()", options, defaults)
        super().__init__({**parameter, "dim": dim, **defaults, **options})

    def forward(
        self, z: Tensor, y: Tensor, row_weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores and targets."""
        return self.function(z, y, row_weight=row_weight, mask=mask, **self.settings())


# --- mappings -------------------------------------------------------------------------------------


class Softmax(MappingModule):
    """`softmax` as a module.

    Parameters
    ----------
    dim : as in `softmax`
    """

    function: Callable[..., Tensor] = mappings.softmax

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)


class Sparsemax(MappingModule):
    """`sparsemax` as a module.

    Parameters
    ----------
    dim : as in `sparsemax`
    """

    function: Callable[..., Tensor] = mappings.sparsemax

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)


class Entmax15(MappingModule):
    """`entmax15` as a module.

    Parameters
    ----------
    dim : as in `entmax15`
    """

    function: Callable[..., Tensor] = mappings.entmax15

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)


class Entmax(MappingModule):
    """`entmax` as a module.

    Parameters
    ----------
    alpha, dim : as in `entmax`
    """

    alpha: Value
    function: Callable[..., Tensor] = mappings.entmax

    def __init__(self, alpha: Value = 1.5, dim: int = -1) -> None:
        super().__init__(dim, alpha=alpha)


class Normmax(MappingModule):
    """`normmax` as a module.

    Parameters
    ----------
    alpha, dim : as in `normmax`
    """

    alpha: Value
    function: Callable[..., Tensor] = mappings.normmax

    def __init__(self, alpha: Value = 2.0, dim: int = -1) -> None:
        super().__init__(dim, alpha=alpha)


class TopkSoftmax(MappingModule):
    """`topk_softmax` as a module.

    Parameters
    ----------
    k, dim : as in `topk_softmax`
    """

    k: Value
    function: Callable[..., Tensor] = mappings.topk_softmax

    def __init__(self, k: Value, dim: int = -1) -> None:
        super().__init__(dim, k=k)


class TopkSparsemax(MappingModule):
    """`topk_sparsemax` as a module.

    Parameters
    ----------
    k, dim : as in `topk_sparsemax`
    """

    k: Value
    function: Callable[..., Tensor] = mappings.topk_sparsemax

    def __init__(self, k: Value, dim: int = -1) -> None:
        super().__init__(dim, k=k)


class Fusedmax(MappingModule):
    """`fusedmax` as a module.

    Parameters
    ----------
    strength, dim : as in `fusedmax`
    """

    strength: Value
    function: Callable[..., Tensor] = mappings.fusedmax

    def __init__(self, strength: Value = 1.0, dim: int = -1) -> None:
        super().__init__(dim, strength=strength)


class Oscarmax(MappingModule):
    """`oscarmax` as a module.

    Parameters
    ----------
    strength, dim : as in `oscarmax`
    """

    strength: Value
    function: Callable[..., Tensor] = mappings.oscarmax

    def __init__(self, strength: Value = 1.0, dim: int = -1) -> None:
        super().__init__(dim, strength=strength)


class Csoftmax(MappingModule):
    """`csoftmax` as a module.

    Parameters
    ----------
    upper, dim : as in `csoftmax`
    """

    upper: Value
    function: Callable[..., Tensor] = mappings.csoftmax

    def __init__(self, upper: Value, dim: int = -1) -> None:
        super().__init__(dim, upper=upper)


class Csparsemax(MappingModule):
    """`csparsemax` as a module.

    Parameters
    ----------
    upper, dim : as in `csparsemax`
    """

    upper: Value
    function: Callable[..., Tensor] = mappings.csparsemax

    def __init__(self, upper: Value, dim: int = -1) -> None:
        super().__init__(dim, upper=upper)


class BudgetSparsemax(MappingModule):
    """`budget_sparsemax` as a module.

    Parameters
    ----------
    budget, dim : as in `budget_sparsemax`
    """

    budget: Value
    function: Callable[..., Tensor] = mappings.budget_sparsemax

    def __init__(self, budget: Value, dim: int = -1) -> None:
        super().__init__(dim, budget=budget)


class EntmaxSigmoid(Settings):
    """`entmax_sigmoid` as a module.

    Parameters
    ----------
    alpha : as in `entmax_sigmoid`
    """

    alpha: Value

    def __init__(self, alpha: Value = 1.5) -> None:
        super().__init__({"alpha": alpha})

    def forward(self, z: Tensor) -> Tensor:
        """A probability for each score."""
        return one_vs_all.entmax_sigmoid(z, self.alpha)


# --- losses ---------------------------------------------------------------------------------------


class SoftmaxLoss(LossModule):
    """``softmax.loss`` as a module.

    Parameters
    ----------
    dim, **options : as in ``softmax.loss``
    """

    function: Callable[..., Tensor] = mappings.softmax.loss

    def __init__(self, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options)


class SparsemaxLoss(LossModule):
    """``sparsemax.loss`` as a module.

    Parameters
    ----------
    dim, **options : as in ``sparsemax.loss``
    """

    function: Callable[..., Tensor] = mappings.sparsemax.loss

    def __init__(self, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options)


class Entmax15Loss(LossModule):
    """``entmax15.loss`` as a module.

    Parameters
    ----------
    dim, **options : as in ``entmax15.loss``
    """

    function: Callable[..., Tensor] = mappings.entmax15.loss

    def __init__(self, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options)


class EntmaxLoss(LossModule):
    """``entmax.loss`` as a module.

    Parameters
    ----------
    alpha, dim, **options : as in ``entmax.loss``
    """

    alpha: Value
    function: Callable[..., Tensor] = mappings.entmax.loss

    def __init__(self, alpha: Value = 1.5, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options, alpha=alpha)


class NormmaxLoss(LossModule):
    """``normmax.loss`` as a module.

    Parameters
    ----------
    alpha, dim, **options : as in ``normmax.loss``
    """

    alpha: Value
    function: Callable[..., Tensor] = mappings.normmax.loss

    def __init__(self, alpha: Value = 2.0, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options, alpha=alpha)


class TopkSparsemaxLoss(LossModule):
    """``topk_sparsemax.loss`` as a module.

    Parameters
    ----------
    k, dim, **options : as in ``topk_sparsemax.loss``
    """

    k: Value
    function: Callable[..., Tensor] = mappings.topk_sparsemax.loss

    def __init__(self, k: Value, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options, k=k)


class FusedmaxLoss(LossModule):
    """``fusedmax.loss`` as a module.

    Parameters
    ----------
    strength, dim, **options : as in ``fusedmax.loss``
    """

    strength: Value
    function: Callable[..., Tensor] = mappings.fusedmax.loss

    def __init__(
        self, strength: Value = 1.0, dim: int = -1, **options: Unpack[ModuleOptions]
    ) -> None:
        super().__init__(dim, options, strength=strength)


class OscarmaxLoss(LossModule):
    """``oscarmax.loss`` as a module.

    Parameters
    ----------
    strength, dim, **options : as in ``oscarmax.loss``
    """

    strength: Value
    function: Callable[..., Tensor] = mappings.oscarmax.loss

    def __init__(
        self, strength: Value = 1.0, dim: int = -1, **options: Unpack[ModuleOptions]
    ) -> None:
        super().__init__(dim, options, strength=strength)


class OneVsAllLoss(LossModule):
    """`one_vs_all_loss` as a module.

    Parameters
    ----------
    alpha, dim, **options : as in `one_vs_all_loss`
    """

    alpha: Value
    function: Callable[..., Tensor] = staticmethod(one_vs_all.one_vs_all_loss)

    def __init__(self, alpha: Value = 1.5, dim: int = -1, **options: Unpack[ModuleOptions]) -> None:
        super().__init__(dim, options, alpha=alpha)


# --- modules that are more than a function --------------------------------------------------------


def _parameter(*shape: int, device: Any, dtype: torch.dtype | None) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))


class Attention(Settings):
    """`attention` by a mapping, without projections; weights are dropped in training only.

    Parameters
    ----------
    alpha, mapping, causal, scale, sink, softcap, dropout, **parameters : as in `attention`
    """

    def __init__(
        self,
        alpha: float | Tensor | None = None,
        *,
        mapping: Any = "entmax",
        causal: bool = False,
        scale: float | Tensor | None = None,
        sink: float | Tensor | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
        **parameters: Any,
    ) -> None:
        mapping, _ = attention_parameter(mapping, alpha, sink, parameters)
        check_settings(softcap, dropout)
        own = {"alpha": alpha, "mapping": mapping, "causal": causal, "scale": scale}
        own |= {"sink": sink, "softcap": softcap, "dropout": dropout}
        super().__init__({**own, **parameters})

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | DistanceBias | None = None,
        *,
        offset: int | Tensor = 0,
        cu_seqlens: Tensor | tuple[Tensor, Tensor] | None = None,
        return_weights: bool = False,
    ) -> Any:
        """The output of shape (…, T, dᵥ), or that and `AttentionWeights`."""
        settings = self.settings()
        if not self.training:
            settings["dropout"] = 0.0
        settings |= {"mask": mask, "bias": bias, "offset": offset, "cu_seqlens": cu_seqlens}
        settings["return_weights"] = return_weights
        return attention(query, key, value, **settings)


class LengthScale(nn.Module):
    """A scale of attention that grows with the number n of keys, δ + β (log(n + 1))^γ, over √d.

    More keys share the weight, so that longer inputs need larger scores to keep it in few places.
    Each head learns δ, β and γ, or δ, and β and γ of each query come from its input x, as in
    ASEntmax (Vasylenko et al. 2025): β = softplus(x·w + b), γ = 2 tanh(x·u + c). With n + 1 the
    scale and its gradients are finite for one key, where (log n)^γ is not for γ < 0.

    Parameters
    ----------
    heads, features : int
        d is the number of features of a head
    beta, gamma : float, default 0.1 and 1.0
        initial values, above 0 and between −2 and 2
    delta : float, default 1.0
    inputs : int, optional
        the number of features of x; w and u begin as zeros
    device, dtype : optional
        of the parameters, as in `torch.nn`

    Examples
    --------
    >>> scale = LengthScale(heads=2, features=4)
    >>> scale(torch.tensor([1, 100])).shape  # 1 key, 100 keys
    torch.Size([2, 2])
    >>> scale = LengthScale(heads=2, features=4, inputs=8)
    >>> scale(torch.tensor([1, 2, 3]), torch.ones(5, 3, 8)).shape
    torch.Size([5, 2, 3])
    """

    __call__: Callable[..., Tensor]
    delta: nn.Parameter
    b: nn.Parameter
    c: nn.Parameter
    w: nn.Parameter
    u: nn.Parameter

    def __init__(
        self,
        heads: int,
        features: int,
        beta: float = 0.1,
        gamma: float = 1.0,
        delta: float = 1.0,
        *,
        inputs: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not beta > 0 or not -2 < gamma < 2:
            raise ValueError(
                f"beta must be above 0, and gamma between -2 and 2, got {beta} and {gamma}"
            )
        self.features, self.inputs = features, inputs
        self._start = float(delta), math.log(math.expm1(beta)), math.atanh(gamma / 2)
        for name, size in {"delta": 1, "b": 1, "c": 1, "w": inputs, "u": inputs}.items():
            if size is not None:
                setattr(self, name, _parameter(heads, size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the initial values."""
        starts = dict(zip(("delta", "b", "c"), self._start, strict=True))
        for name, parameter in self.named_parameters():
            nn.init.constant_(parameter, starts.get(name, 0.0))

    def forward(self, keys: Tensor, x: Tensor | None = None) -> Tensor:
        """The scale of shape (heads, T), or (…, heads, T) with x of shape (…, T, inputs).

        `keys`, (T,) or (…, 1, T), is the number of keys that each query sees.
        """
        if (x is None) != (self.inputs is None):
            raise ValueError(f"x: expected inputs={self.inputs} features of each query, got {x!r}")
        b, c = self.b, self.c
        if x is not None:
            b, c = b + self.w @ x.mT, c + self.u @ x.mT
        log_n = keys.clamp(min=1).to(self.b.dtype).log1p()
        grown = self.delta + softplus(b) * log_n ** (2 * torch.tanh(c))
        return grown * max(self.features, 1) ** -0.5

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        more = "" if self.inputs is None else f", inputs={self.inputs}"
        return f"heads={len(self.delta)}, features={self.features}{more}"


class LogScale(nn.Module):
    """The scale s log n of attention over n keys, over √d: Scalable-Softmax (Nakanishi 2025).

    Each head learns an s. A query with one key has scale 0, and gives it all weight.

    Parameters
    ----------
    heads, features : int
        d is the number of features of a head
    s : float, default 0.5
        the initial value
    device, dtype : optional
        of the parameter, as in `torch.nn`

    Examples
    --------
    >>> LogScale(heads=1, features=4)(torch.tensor([1, 10, 100])).detach()
    tensor([[0.0000, 0.5756, 1.1513]])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self, heads: int, features: int, s: float = 0.5, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.features, self._start = features, float(s)
        self.s = _parameter(heads, 1, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the initial values."""
        nn.init.constant_(self.s, self._start)

    def forward(self, keys: Tensor) -> Tensor:
        """The scale of shape (heads, T), given the number of keys that each of T queries sees."""
        log_n = keys.clamp(min=1).to(self.s.dtype).log()
        return self.s * log_n * max(self.features, 1) ** -0.5

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        return f"heads={len(self.s)}, features={self.features}"


class AlphaEntmax(nn.Module):
    """α-entmax with an α for each head that is learned, α = 1 + σ(a) (Correia et al. 2019, §4).

    Parameters
    ----------
    heads : int
    dim : int, default -1
        of the scores, (…, heads, T, S)
    a : Tensor of shape (heads,), optional
        initial values; by default drawn from N(0, 1) as the paper's authors do
    device, dtype : optional
        of the parameter, as in `torch.nn`

    Attributes
    ----------
    a : Parameter of shape (heads,)
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self, heads: int, dim: int = -1, *, a: Tensor | None = None, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if a is not None and a.shape != (heads,):
            raise ValueError(f"a must have the shape ({heads},), got {tuple(a.shape)}")
        self.dim = dim
        if a is None:
            self.a = _parameter(heads, device=device, dtype=dtype)
            self.reset_parameters()
        else:
            self.a = nn.Parameter(a.detach().to(device=device, dtype=dtype, copy=True))

    def reset_parameters(self) -> None:
        """Draw the initial values from N(0, 1)."""
        nn.init.normal_(self.a)

    @property
    def alpha(self) -> Tensor:
        """α of each head, in (1, 2); in float32 at least, whose steps are small enough to learn."""
        return 1 + torch.sigmoid(composed.wide(self.a))

    def forward(self, scores: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Weights of scores of shape (…, heads, T, S); without scores α, for an attention.

        Hooks that fetch parameters, as of offloading and FSDP, act on a call, not on `alpha`.
        """
        if scores is None:
            return self.alpha
        return apply("entmax", scores, self.alpha.unsqueeze(-1), self.dim, mask=mask)

    def extra_repr(self) -> str:
        """The settings that ``print`` shows."""
        return f"heads={len(self.a)}, dim={self.dim}"
