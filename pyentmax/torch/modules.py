"""The same as modules: ``Entmax15(dim=-1)`` for ``entmax15``, ``Entmax15Loss()`` for its loss.

They are made from `pyentmax.MAPPINGS` as the functions are. A parameter of a mapping may be a
number, a tensor, which moves with the module, or an ``nn.Parameter``, which is learned.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pyentmax.calls.record import Mapping
from pyentmax.mappings import MAPPINGS
from pyentmax.torch import functions, one_vs_all


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
        name, default = functions._parameter(MAPPINGS[self.mapping])
        given = list(args)
        self.value: Any = None
        if name is not None:
            first = given.pop(0) if given else functions.MISSING
            value = functions._chosen(self.mapping, name, first, named, default)
            _keep(self, value)
        if len(given) > 1 or named:
            raise TypeError(f"{type(self).__name__} takes {name or 'no parameter'} and dim")
        self.dim = given[0] if given else dim

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probabilities of scores."""
        return functions.apply(self.mapping, z, self.value, self.dim, mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        (name,) = MAPPINGS[self.mapping].parameters or ("",)
        shown = isinstance(self.value, (int, float))
        return f"{name}={self.value}, dim={self.dim}" if shown else f"dim={self.dim}"


class LossModule(nn.Module):
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
        super().__init__()
        name, default = functions._parameter(MAPPINGS[self.mapping])
        self.value: Any = None
        if name is not None:
            first, *args = args or (functions.MISSING,)  # type: ignore[assignment]
            _keep(self, functions._chosen(self.mapping, name, first, named, default, strict=False))
        if args or named:
            unknown = next(iter(named), None) or f"{args[0]!r} by position"
            taken = name or "no parameter of a mapping"
            raise TypeError(
                f"{type(self).__name__} takes {taken}, dim, reduction, ignore_index and "
                f"label_smoothing, got {unknown}; weight and mask go with the scores: "
                "loss(z, y, weight, mask)"
            )
        self.dim, self.reduction = dim, reduction
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(
        self, z: Tensor, y: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores and targets."""
        return functions.apply_loss(
            self.mapping,
            z,
            y,
            self.value,
            self.dim,
            reduction=self.reduction,
            weight=weight,
            mask=mask,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"reduction={self.reduction!r}"


class EntmaxSigmoid(nn.Module):
    """`entmax_sigmoid` of each score as a module.

    Parameters
    ----------
    alpha : float or Tensor that broadcasts to the scores, default 1.5
        an ``nn.Parameter`` is learned
    """

    def __init__(self, alpha: float | Tensor = 1.5) -> None:
        super().__init__()
        _keep(self, alpha)

    def forward(self, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """The probability of each score."""
        return one_vs_all.entmax_sigmoid(z, self.value, mask=mask)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"alpha={self.value}" if isinstance(self.value, (int, float)) else ""


class EntmaxSigmoidLoss(nn.Module):
    """`entmax_sigmoid_loss` of each score as a module.

    Parameters
    ----------
    alpha : float or Tensor that broadcasts to the scores, default 1.5
    reduction, ignore_index, label_smoothing
        as in `pyentmax.entmax_sigmoid_loss`
    """

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        *,
        reduction: str = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        _keep(self, alpha)
        self.reduction = reduction
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(
        self, z: Tensor, y: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of scores, and whether each is so."""
        return one_vs_all.entmax_sigmoid_loss(z, y, self.value, **self._options(weight, mask))

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
    alpha, mapping, causal, scale : as in `attention`
    """

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
        _keep(self, alpha)
        self.mapping, self.causal, self.scale = mapping, causal, scale
        self.parameters_of_mapping = parameters

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
            **self.parameters_of_mapping,
        )


class AlphaEntmax(nn.Module):
    """α-entmax with an α for each head that is learned, α = 1 + σ(a) (Correia et al. 2019, §4).

    Parameters
    ----------
    heads : int
    dim : int, default -1
        of the scores, (…, heads, T, S)
    a : Tensor of shape (heads,), optional
        to begin with; by default drawn from N(0, 1) as the paper's authors do

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


def _keep(module: nn.Module, value: Any) -> None:
    """A tensor moves with the module; a parameter is learned, too."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        module.__dict__.pop("value", None)
        module.register_buffer("value", value)
    else:
        module.value = value


def _class(base: type, record: Mapping, suffix: str = "") -> type:
    name = "".join(part.capitalize() for part in record.name.split("_")) + suffix
    text = (
        f"`pyentmax.{record.name}` as a module."
        if not suffix
        else (f"The loss of `pyentmax.{record.name}` as a module.")
    )
    assert base.__doc__ is not None
    _, _, rest = base.__doc__.partition("\n")
    namespace = {"mapping": record.name, "__doc__": f"{text}\n{rest}", "__module__": __name__}
    return type(name, (base,), namespace)


_MADE = [_class(MappingModule, record) for record in MAPPINGS.values()]
_MADE += [
    _class(LossModule, record, "Loss") for record in MAPPINGS.values() if record.omega is not None
]
MODULES: dict[str, type] = {made.__name__: made for made in _MADE}
globals().update(MODULES)  # where pickle looks for them
