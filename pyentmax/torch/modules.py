"""The functions as modules: ``Entmax15(dim=-1)`` for ``entmax15``, ``Entmax15Loss()`` for its loss.

They are made from `pyentmax.MAPPINGS` as the functions are. A parameter of a mapping may be a
number, a tensor, which moves with the module, or an ``nn.Parameter``, which is learned.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pyentmax import MAPPINGS
from pyentmax.torch import functions, one_vs_all
from pyentmax.torch.functions import MISSING, attention_parameter, chosen, parameter_of


class MappingModule(nn.Module):
    """A mapping along a dimension.

    Parameters
    ----------
    value : float or Tensor
        the mapping's parameter, by its name or first, where it has one
    dim : int, default -1
    """

    mapping = ""

    def __init__(self, *args: Any, dim: int = -1, **named: Any) -> None:
        super().__init__()
        args = _set_parameter(self, args, named)
        if len(args) > 1:
            raise TypeError(f"{type(self).__name__} takes {self._parameter or 'no parameter'}, dim")
        self.dim = args[0] if args else dim

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of scores."""
        return functions.apply(self.mapping, z, self.value, self.dim, mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        shown = isinstance(self.value, (int, float))
        return f"{self._parameter}={self.value}, dim={self.dim}" if shown else f"dim={self.dim}"


class _Loss(nn.Module):
    """What losses share: the options, and how the parameters of a call are passed on."""

    value: Any

    def __init__(
        self, reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def _options(self, weight: Tensor | None, mask: Tensor | None) -> dict[str, Any]:
        return {
            "reduction": self.reduction,
            "weight": weight,
            "mask": mask,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
        }

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"reduction={self.reduction!r}"


class LossModule(_Loss):
    """A mapping's loss.

    Parameters
    ----------
    value : float or Tensor
        the mapping's parameter, by its name or first, where it has one
    dim : int, default -1
    reduction, ignore_index, label_smoothing
        as in `pyentmax.fenchel_young_loss`
    """

    mapping = ""

    def __init__(
        self,
        *args: Any,
        dim: int = -1,
        reduction: str = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        **named: Any,
    ) -> None:
        super().__init__(reduction, ignore_index, label_smoothing)
        for name in ("weight", "mask"):
            if name in named:
                raise TypeError(
                    f"{type(self).__name__} got {name}; weight and mask go with the scores: "
                    "loss(z, y, weight, mask)"
                )
        if args := _set_parameter(self, args, named):
            raise TypeError(
                f"{type(self).__name__} takes {self._parameter or 'nothing'} by position, got "
                f"{args[0]!r}"
            )
        self.dim = dim

    def forward(
        self, z: Tensor, y: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores and targets."""
        options = self._options(weight, mask)
        return functions.apply_loss(self.mapping, z, y, self.value, self.dim, **options)


class EntmaxSigmoid(nn.Module):
    """`entmax_sigmoid` of each score as a module.

    Parameters
    ----------
    alpha : float or Tensor that broadcasts to the scores, default 1.5
        an ``nn.Parameter`` is learned
    """

    value: Any

    def __init__(self, alpha: float | Tensor = 1.5) -> None:
        super().__init__()
        _store(self, alpha)

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """The probability of each score."""
        return one_vs_all.entmax_sigmoid(z, self.value, mask=mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"alpha={self.value}" if isinstance(self.value, (int, float)) else ""


class EntmaxSigmoidLoss(_Loss):
    """`entmax_sigmoid_loss` of each score as a module.

    Parameters
    ----------
    alpha : float or Tensor that broadcasts to the scores, default 1.5
    reduction, ignore_index, label_smoothing
        as in `pyentmax.entmax_sigmoid_loss`
    """

    def __init__(self, alpha: float | Tensor = 1.5, **options: Any) -> None:
        super().__init__(**options)
        _store(self, alpha)

    def forward(
        self, z: Tensor, y: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores, and of targets in [0, 1] like them."""
        return one_vs_all.entmax_sigmoid_loss(z, y, self.value, **self._options(weight, mask))


class OneVsAllLoss(EntmaxSigmoidLoss):
    """`one_vs_all_loss` as a module: each class decides for itself.

    Parameters
    ----------
    alpha : float or Tensor that broadcasts to the scores, default 1.5
    dim : int, default -1
        of the classes
    reduction, ignore_index, label_smoothing
        as in `pyentmax.one_vs_all_loss`
    """

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, **options: Any) -> None:
        super().__init__(alpha, **options)
        self.dim = dim

    def forward(
        self, z: Tensor, y: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores, and labels or targets of each class."""
        options = self._options(weight, mask)
        return one_vs_all.one_vs_all_loss(z, y, self.value, self.dim, **options)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"dim={self.dim}, {super().extra_repr()}"


class Attention(nn.Module):
    """`attention` by a mapping, without projections.

    Parameters
    ----------
    alpha, mapping, causal, scale, **parameters : as in `attention`
    """

    value: Any

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        *,
        mapping: str = "entmax",
        causal: bool = False,
        scale: float | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__()
        attention_parameter(mapping, alpha, scale, dict(parameters))
        _store(self, alpha)
        self.mapping, self.causal, self.scale = mapping, causal, scale
        self.mapping_parameters = parameters

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """The output of shape (…, T, dᵥ)."""
        return functions.attention(
            query,
            key,
            value,
            self.value,
            mapping=self.mapping,
            mask=mask,
            causal=self.causal,
            scale=self.scale,
            **self.mapping_parameters,
        )


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

    def __init__(self, heads: int, dim: int = -1, *, a: Tensor | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.a = nn.Parameter(torch.randn(heads) if a is None else a.detach().clone())
        if self.a.shape != (heads,):
            raise ValueError(f"a must have the shape ({heads},), got {tuple(self.a.shape)}")

    @property
    def alpha(self) -> Tensor:
        """α of each head, in (1, 2)."""
        return 1 + torch.sigmoid(self.a)

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Weights of scores of shape (…, heads, T, S)."""
        return functions.apply("entmax", scores, self.alpha.unsqueeze(-1), self.dim, mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"heads={len(self.a)}, dim={self.dim}"


def _set_parameter(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Store the mapping's parameter, from the first argument or its name; the other arguments."""
    name, default = parameter_of(module.mapping)
    first = MISSING
    if name is not None and args:
        first, *rest = args
        args = tuple(rest)
    module._parameter = name
    _store(module, chosen(type(module).__name__, name, default, first, named))
    return args


def _store(module: nn.Module, value: Any) -> None:
    """A tensor moves with the module; an ``nn.Parameter`` is learned, too."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        module.register_buffer("value", value)
    else:
        module.value = value


def _class(base: type, mapping: str, suffix: str = "") -> type:
    name = "".join(part.capitalize() for part in mapping.split("_")) + suffix
    first = f"The loss of `pyentmax.{mapping}`" if suffix else f"`pyentmax.{mapping}`"
    _, _, rest = (base.__doc__ or "").partition("\n")  # python -OO has no docstrings
    namespace = {
        "mapping": mapping,
        "__doc__": f"{first} as a module.\n{rest}",
        "__module__": __name__,
    }
    return type(name, (base,), namespace)


_MADE = [_class(MappingModule, name) for name in MAPPINGS]
_MADE += [
    _class(LossModule, name, "Loss")
    for name, record in MAPPINGS.items()
    if record.omega is not None
]
MODULES: dict[str, type] = {made.__name__: made for made in _MADE}
globals().update(MODULES)  # where pickle looks for them
