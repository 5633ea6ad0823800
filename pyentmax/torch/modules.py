"""The functions as modules: ``Entmax15(dim=-1)`` for ``entmax15``, ``Entmax15Loss()`` for its loss.

They are made from the functions. A parameter of a mapping may be a number, a tensor, which moves
with the module, or an ``nn.Parameter``, which is learned.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pyentmax.torch import composed, functions, one_vs_all
from pyentmax.torch.functions import LOSS_FUNCTIONS, MAPPING_FUNCTIONS
from pyentmax.torch.sparse_attention import attention, attention_parameter, check_settings


class Settings(nn.Module):
    """A module with settings for a function, as its attributes."""

    __call__: Callable[..., Tensor]

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._names = tuple(settings)
        for name, value in settings.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def settings(self) -> dict[str, Any]:
        """The settings by their names."""
        return {name: getattr(self, name) for name in self._names}

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        shown = {name: x for name, x in self.settings().items() if not isinstance(x, Tensor)}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class FunctionModule(Settings):
    """A function whose settings have the signature of the class."""

    __signature__: inspect.Signature
    function: Callable[..., Tensor]

    def __init__(self, *args: Any, **named: Any) -> None:
        try:
            settings = self.__signature__.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}() {error}") from None
        settings.apply_defaults()
        super().__init__(settings.arguments)


class MappingModule(FunctionModule):
    """A function of scores."""

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of scores."""
        return self.function(z, mask=mask, **self.settings())


class LossModule(FunctionModule):
    """A function of scores and targets."""

    def forward(
        self, z: Tensor, y: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores and targets."""
        return self.function(z, y, weight=weight, mask=mask, **self.settings())


def module_class(
    base: type, name: str, function: Callable[..., Tensor], settings: list[inspect.Parameter]
) -> type:
    """A module that calls the function."""
    called = function.__name__
    namespace = {
        "__doc__": f"""`{called}` as a module; tensors come with each call.

        Parameters
        ----------
        {", ".join(setting.name for setting in settings)} : as in `{called}`
        """,
        "__module__": __name__,  # where pickle looks for it
        "__signature__": inspect.Signature(settings),
        "function": staticmethod(function),
    }
    return functions.with_tensors(type(name, (base,), namespace))


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
        mapping: str = "entmax",
        causal: bool = False,
        scale: float | Tensor | None = None,
        sink: float | Tensor | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
        **parameters: Any,
    ) -> None:
        attention_parameter(mapping, alpha, sink, parameters)
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
        bias: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        cu_seqlens: Tensor | tuple[Tensor, Tensor] | None = None,
        return_weights: bool = False,
    ) -> Any:
        """The output of shape (…, T, dᵥ), or that and the weights of shape (…, T, S)."""
        settings = self.settings()
        if not self.training:
            settings["dropout"] = 0.0
        settings |= {"mask": mask, "bias": bias, "offset": offset, "cu_seqlens": cu_seqlens}
        settings["return_weights"] = return_weights
        return attention(query, key, value, **settings)


class LengthScale(nn.Module):
    """A scale of attention that grows with the number of keys, δ + β (log(n + 1))^γ, over √d.

    More keys share the weight, so that longer inputs need larger scores to keep it in few places.
    With δ = 0 and γ = 1 it is close to the s log n of Scalable-Softmax (Nakanishi 2025); all three
    are learned for each head, as in ASEntmax (Vasylenko et al. 2025), β by a softplus and γ as
    2 tanh. For n = 1 it is finite, with finite gradients.

    Parameters
    ----------
    heads, features : int
        d is the number of features of a head
    beta, gamma : float, default 0.1 and 1.0
        initial values, above 0 and from −2 to 2
    delta : float, default 1.0

    Examples
    --------
    >>> scale = LengthScale(heads=2, features=4)
    >>> scale(torch.tensor([1, 100])).shape  # 1 key, 100 keys
    torch.Size([2, 2])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        heads: int,
        features: int,
        beta: float = 0.1,
        gamma: float = 1.0,
        delta: float = 1.0,
    ) -> None:
        super().__init__()
        if not beta > 0 or not -2 < gamma < 2:
            raise ValueError(
                f"beta must be above 0, and gamma between -2 and 2, got {beta} and {gamma}"
            )
        self.features = features
        start = torch.tensor(beta).expm1().log(), torch.tensor(gamma / 2).atanh()
        self.delta: nn.Parameter = nn.Parameter(torch.full((heads, 1), float(delta)))
        self.b: nn.Parameter = nn.Parameter(start[0].repeat(heads, 1))
        self.c: nn.Parameter = nn.Parameter(start[1].repeat(heads, 1))

    def forward(self, keys: Tensor) -> Tensor:
        """The scale of shape (heads, T), given the number of keys that each of T queries sees."""
        log_n = keys.to(self.b.dtype).log1p()
        grown = self.delta + softplus(self.b) * log_n ** (2 * torch.tanh(self.c))
        return grown * max(self.features, 1) ** -0.5

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"heads={len(self.delta)}, features={self.features}"


class AlphaEntmax(nn.Module):
    """α-entmax with an α for each head that is learned, α = 1 + σ(a) (Correia et al. 2019, §4).

    Parameters
    ----------
    heads : int
    dim : int, default -1
        of the scores, (…, heads, T, S)
    a : Tensor of shape (heads,), optional
        initial values; by default drawn from N(0, 1) as the paper's authors do

    Attributes
    ----------
    a : Parameter of shape (heads,)
    """

    __call__: Callable[..., Tensor]

    def __init__(self, heads: int, dim: int = -1, *, a: Tensor | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.a: nn.Parameter = nn.Parameter(torch.randn(heads) if a is None else a.detach().clone())
        if self.a.shape != (heads,):
            raise ValueError(f"a must have the shape ({heads},), got {tuple(self.a.shape)}")

    @property
    def alpha(self) -> Tensor:
        """α of each head, in (1, 2); in float32 at least, whose steps are small enough to learn."""
        return 1 + torch.sigmoid(composed.wide(self.a))

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights of scores of shape (…, heads, T, S)."""
        return functions.apply("entmax", scores, self.alpha.unsqueeze(-1), self.dim, mask=mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"heads={len(self.a)}, dim={self.dim}"


def _made(base: type, functions_by_name: dict[str, Callable[..., Tensor]]) -> dict[str, type]:
    classes = {}
    for name, function in functions_by_name.items():
        title = "".join(part.capitalize() for part in name.split("_"))
        parameters = inspect.signature(function).parameters.values()
        settings = [p for p in parameters if p.name not in ("z", "y", "weight", "mask", "dtype")]
        classes[title] = module_class(base, title, function, settings)
    return classes


MODULES = {
    **_made(MappingModule, {**MAPPING_FUNCTIONS, "entmax_sigmoid": one_vs_all.entmax_sigmoid}),
    **_made(
        LossModule,
        {
            **LOSS_FUNCTIONS,
            "entmax_sigmoid_loss": one_vs_all.entmax_sigmoid_loss,
            "one_vs_all_loss": one_vs_all.one_vs_all_loss,
        },
    ),
}
globals().update(MODULES)
