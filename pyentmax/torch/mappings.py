"""The mappings of tensors, as objects: `entmax15(z)`, `entmax15.support`, `.log`, `.loss`.

Each is the object of the same name in `pyentmax`, whose documentation derives it, with ``dim`` for
its ``axis``. All have gradients in the scores, and in a parameter where its description says so.
The text of a call returns its arguments; what it computes is looked up by the mapping's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, overload

import torch
from torch import Tensor

import pyentmax as pe
from pyentmax import Alpha, Strength, TopK
from pyentmax.torch.arguments import check_known, refuse_axis
from pyentmax.torch.calls import LOSS_OPTIONS, LossOptions, apply, apply_loss, apply_support, chosen

P = ParamSpec("P")
K = TypeVar("K")
Value: TypeAlias = float | Tensor
Mask: TypeAlias = Tensor | None
Dtype: TypeAlias = torch.dtype | None
Arguments: TypeAlias = tuple[Tensor, Any, int, Mask, Dtype]  # scores, parameter, dim, mask, dtype
Text: TypeAlias = Callable[Concatenate[Tensor, P], Arguments]


class TensorFunction(Generic[P]):
    """A function of tensors; `bind` is the text of its mapping, which returns its arguments."""

    def __init__(self, name: str, bind: Text[P]) -> None:
        self.__qualname__, self.__module__, self.bind = name, bind.__module__, bind
        self.name, _, self.__name__ = name.rpartition(".") if "." in name else (name, "", name)
        self.__doc__ = inspect.cleandoc(type(self).__doc__ or "")
        call = inspect.signature(type(self).__call__)
        inputs, options = (
            [x for x in call.parameters.values() if x.kind == kind]
            for kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        )
        _, *shared = inspect.signature(bind).parameters.values()
        shared = [x for x in shared if not options or x.kind == x.POSITIONAL_OR_KEYWORD]
        self.names = tuple(x.name for x in shared)
        self.__signature__ = call.replace(parameters=[*inputs[1:], *shared, *options])

    def __reduce__(self) -> str:  # pickled by name, as functions are
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<pyentmax.torch.{self.__qualname__}>"


class Support(TensorFunction[P]):
    """Where the mapping gives probability, even if it underflows to 0: bools of z's shape."""

    def __call__(self, z: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """The bools of scores."""
        if "axis" in kwargs:
            refuse_axis(self.__qualname__)
        z, value, dim, mask, dtype = self.bind(z, *args, **kwargs)
        return apply_support(self.name, z, value, dim, mask=mask, dtype=dtype)


class Log(TensorFunction[P]):
    """log p of p = mapping(z): −∞ off the support, and no digit lost elsewhere.

    ``pt.entmax(z).log()`` is −∞ where p underflows, and has few correct digits near p = 1.
    Gradients exist of every order, in the scores and in α; a logarithm that is −∞ gets and gives
    none. For a model that is trained, the Fenchel-Young losses are finite for every target and have
    a gradient everywhere; these logarithms are for decoding, for scores of samples, and for
    softmax.
    """

    def __call__(self, z: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """The logarithms."""
        if "axis" in kwargs:
            refuse_axis(self.__qualname__)
        z, value, dim, mask, dtype = self.bind(z, *args, **kwargs)
        return apply(f"log_{self.name}", z, value, dim, mask=mask, dtype=dtype)


class Loss(TensorFunction[...], Generic[K]):
    """The mapping's Fenchel-Young loss Ω*(z) + Ω(y) − z·y, whose gradient in z is mapping(z) − y.

    It has gradients in z, where the mapping's are known in y, and in weights, and none in the
    mapping's parameter (Blondel et al. 2020, Def. 1).

    Parameters
    ----------
    z : Tensor of scores
    y : Tensor of integer labels, of z's shape without ``dim``, or of distributions like z
    alpha, k, strength : as in the mapping
    dim : int, default -1
        along which the classes lie
    reduction : "mean", "sum" or "none", default "mean"
        the mean divides by the sum of the weights that count, and is 0 where none does
    weight : Tensor of shape (d,), optional
        the weight of each class, for integer labels alone: a row counts by that of its label, also
        with `label_smoothing`, where `torch.nn.functional.cross_entropy` multiplies each class's
        part of the smoothed target by that class's weight
    row_weight : Tensor that broadcasts to the labels' shape, optional
        the weight of each row, which may be learned; it multiplies that of the label
    mask : bool Tensor that broadcasts to z, optional
        True where a score may get probability
    ignore_index : int, optional
        rows with this label are ignored
    label_smoothing : float in [0, 1], default 0.0
        ε in q = (1 − ε) q + ε/d, d the number of unmasked entries

    Returns
    -------
    Tensor: a number, or for the reduction "none" a loss for each row

    Raises
    ------
    ValueError
        if y is neither labels nor distributions that fit z, or an option is out of its range or
        does not fit
    TypeError
        if z, y or an option is of the wrong kind
    """

    # PEP 612: no method adds options to a ParamSpec. So here the parameters are written out.
    @overload
    def __call__(
        self: Loss[None], z: Tensor, y: Tensor, dim: int = -1, **options: Unpack[LossOptions]
    ) -> Tensor: ...
    @overload
    def __call__(
        self: Loss[Alpha], z: Tensor, y: Tensor, alpha: Value = ..., dim: int = -1,
        **options: Unpack[LossOptions],
    ) -> Tensor: ...  # fmt: skip
    @overload
    def __call__(
        self: Loss[TopK], z: Tensor, y: Tensor, k: Value, dim: int = -1,
        **options: Unpack[LossOptions],
    ) -> Tensor: ...  # fmt: skip
    @overload
    def __call__(
        self: Loss[Strength], z: Tensor, y: Tensor, strength: Value = ..., dim: int = -1,
        **options: Unpack[LossOptions],
    ) -> Tensor: ...  # fmt: skip
    def __call__(
        self, z: Any, y: Any, *args: Any, reduction: str = "mean", weight: Any = None,
        row_weight: Any = None, mask: Any = None, ignore_index: Any = None,
        label_smoothing: Any = 0.0, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        """The loss, reduced."""
        check_known(f"{self.__qualname__}()", kwargs, self.names)
        z, value, dim, *_ = self.bind(z, *args, **kwargs)
        return apply_loss(
            self.name, z, y, value, dim, reduction=reduction, weight=weight, row_weight=row_weight,
            mask=mask, ignore_index=ignore_index, label_smoothing=label_smoothing,
        )  # fmt: skip


class Mapping(TensorFunction[P], Generic[P, K]):
    """A mapping of tensors; what it has no rule for raises an error when it is called.

    Parameters
    ----------
    text : function of scores that returns its arguments
    arrays : the mapping of arrays

    Attributes
    ----------
    support, log, loss : functions of tensors
    arrays : the mapping of arrays, with its derivatives
    """

    def __init__(self, text: Text[P], arrays: pe.Mapping[Any, K]) -> None:  # type: ignore[type-var]
        name = text.__name__
        super().__init__(name, text)
        self.__doc__, self.__wrapped__, self.arrays = text.__doc__, text, arrays
        self.support: Support[P] = Support(f"{name}.support", text)
        self.log: Log[P] = Log(f"{name}.log", text)
        self.loss: Loss[K] = Loss(f"{name}.loss", text)

    def __call__(self, z: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """The probabilities of scores."""
        if "axis" in kwargs:
            refuse_axis(self.__qualname__)
        z, value, dim, mask, dtype = self.bind(z, *args, **kwargs)
        return apply(self.name, z, value, dim, mask=mask, dtype=dtype)


def of_tensors(  # its parameter bounds K, which is private there
    arrays: pe.Mapping[Any, K],  # type: ignore[type-var]
) -> Callable[[Text[P]], Mapping[P, K]]:
    """Decorator: the mapping of tensors, given that of arrays."""
    return lambda text: Mapping(text, arrays)


@of_tensors(pe.softmax)
def softmax(z: Tensor, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None) -> Arguments:
    """Dense probabilities: argmax of p·z + H(p) over the simplex, H Shannon's entropy.

    Parameters
    ----------
    z : Tensor of scores
    dim : int, default -1
        along which the rows lie
    mask : bool Tensor that broadcasts to z, optional
        True where a score may get probability; False is the same as a score of −∞
    dtype : torch.dtype, optional
        to which z is converted first, as by `torch.softmax`

    Returns
    -------
    Tensor of z's shape and dtype
        rows sum to 1; a row with nothing left is zeros, one with a NaN or +∞ is NaN

    Raises
    ------
    ValueError
        if mask does not broadcast to z, or z is 0-dimensional or empty along ``dim``
    TypeError
        if z is not a dense tensor of a floating dtype, or mask is not boolean

    Examples
    --------
    >>> softmax(torch.tensor([-0.3, -1.0, 1.8]))
    tensor([0.1035, 0.0514, 0.8451])
    """
    return z, None, dim, mask, dtype


@of_tensors(pe.sparsemax)
def sparsemax(z: Tensor, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None) -> Arguments:
    """Sparse probabilities: the point of the simplex nearest to z (Martins & Astudillo 2016).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> sparsemax(torch.tensor([1.0, 0.5, -2.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    return z, None, dim, mask, dtype


@of_tensors(pe.entmax15)
def entmax15(z: Tensor, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None) -> Arguments:
    """Sparse probabilities p = [z/2 − τ]₊²: α-entmax at α = 1.5 (Peters et al. 2019, Alg. 2).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> entmax15(torch.tensor([2.0, 1.6, -1.0]))
    tensor([0.6400, 0.3600, 0.0000])
    """
    return z, None, dim, mask, dtype


@of_tensors(pe.entmax)
def entmax(
    z: Tensor, alpha: Value = 1.5, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Sparse probabilities p = [(α−1) z − τ]₊^{1/(α−1)} (Peters et al. 2019, Eq. 10 and App. C).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    alpha : float or Tensor that broadcasts to z's shape without ``dim``, default 1.5
        above 0; a tensor gets a gradient. 1 is softmax, 2 sparsemax, ``inf`` uniform over the
        largest scores

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> entmax(torch.tensor([2.0, 1.6, -1.0]), 1.5)
    tensor([0.6400, 0.3600, 0.0000])
    """
    return z, alpha, dim, mask, dtype


@of_tensors(pe.normmax)
def normmax(
    z: Tensor, alpha: Value = 2.0, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Sparse probabilities p ∝ [z − τ]₊^{1/(α−1)}: argmax over the simplex of p·z − ‖p‖_α.

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    alpha : float or Tensor that broadcasts to z's shape without ``dim``, default 2.0
        above 1; ``inf`` is uniform over sparsemax's support

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> normmax(torch.tensor([0.8, 0.6, -1.0]))
    tensor([0.5714, 0.4286, 0.0000])
    """
    return z, alpha, dim, mask, dtype


@of_tensors(pe.topk_softmax)
def topk_softmax(
    z: Tensor, k: Value, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Softmax over each row's k largest scores (Explicit Sparse Transformer, Eq. 2 and 3).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    k : whole number or Tensor that broadcasts to z's shape without ``dim``
        number of scores to keep, at least 1

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> topk_softmax(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2)
    tensor([0.7311, 0.2689, 0.0000, 0.0000])
    """
    return z, k, dim, mask, dtype


@of_tensors(pe.topk_sparsemax)
def topk_sparsemax(
    z: Tensor, k: Value, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Sparse probabilities: the point nearest to z of the simplex with at most k non-zeros.

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    k : whole number or Tensor that broadcasts to z's shape without ``dim``
        the most non-zeros, at least 1

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> topk_sparsemax(torch.tensor([1.0, 0.8, 0.9, -1.0]), 2)
    tensor([0.5500, 0.0000, 0.4500, 0.0000])
    """
    return z, k, dim, mask, dtype


@of_tensors(pe.fusedmax)
def fusedmax(
    z: Tensor, strength: Value = 1.0, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Sparse probabilities, equal over runs of neighbours (Niculae & Blondel 2017).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    strength : float or Tensor that broadcasts to z's shape without ``dim``, default 1.0
        λ ≥ 0; a tensor gets a gradient

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> fusedmax(torch.tensor([1.0, 0.9, 1.1, -1.0, 0.8]), 0.1)
    tensor([0.3167, 0.3167, 0.3167, 0.0000, 0.0500])
    """
    return z, strength, dim, mask, dtype


@of_tensors(pe.oscarmax)
def oscarmax(
    z: Tensor, strength: Value = 1.0, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Sparse probabilities, equal over groups of entries anywhere (Niculae & Blondel 2017).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    strength : as in `fusedmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> oscarmax(torch.tensor([1.0, -1.0, 0.9, 0.2, 1.1]), 0.1)
    tensor([0.3333, 0.0000, 0.3333, 0.0000, 0.3333])
    """
    return z, strength, dim, mask, dtype


@of_tensors(pe.csoftmax)
def csoftmax(
    z: Tensor, upper: Value, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Probabilities p = min(u, e^z r): softmax with upper bounds (Martins & Kreutzer 2017).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    upper : float or Tensor of bounds u ≥ 0 that broadcasts to z
        1 or more sets no bound; the unmasked bounds of a row must sum to 1 or more. A tensor gets
        a gradient

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> csoftmax(torch.tensor([2.0, 0.0, 0.0]), torch.tensor([0.5, 1.0, 1.0]))
    tensor([0.5000, 0.2500, 0.2500])
    """
    return z, upper, dim, mask, dtype


@of_tensors(pe.csparsemax)
def csparsemax(
    z: Tensor, upper: Value, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Sparse probabilities p = clip(z − τ, 0, u): sparsemax with bounds (Malaviya et al. 2018).

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    upper : as in `csoftmax`

    Returns
    -------
    as in `softmax`

    Examples
    --------
    >>> csparsemax(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([0.5, 1.0, 1.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    return z, upper, dim, mask, dtype


@of_tensors(pe.budget_sparsemax)
def budget_sparsemax(
    z: Tensor, budget: Value, dim: int = -1, *, mask: Mask = None, dtype: Dtype = None
) -> Arguments:
    """Shares p = clip(z − τ, 0, 1) that sum to the budget k: sparsemax that takes k in all.

    Parameters
    ----------
    z, dim, mask, dtype : as in `softmax`
    budget : float or Tensor that broadcasts to z's shape without ``dim``
        k, at most the number of a row's unmasked entries; a tensor gets a gradient

    Returns
    -------
    Tensor of z's shape and dtype, with exact zeros and ones; rows sum to the budget

    Examples
    --------
    >>> budget_sparsemax(torch.tensor([3.0, 1.0, 0.5, -2.0]), 2)
    tensor([1.0000, 0.7500, 0.2500, 0.0000])
    """
    return z, budget, dim, mask, dtype


def fenchel_young_loss(
    z: Tensor, y: Tensor, mapping: Any = "entmax15", dim: int = -1, **options: Any
) -> Tensor:
    """The Fenchel-Young loss of any mapping in `pyentmax.MAPPINGS` that has an Ω.

    Parameters
    ----------
    z, y, dim : as in ``softmax.loss``
    mapping : str, or a mapping such as `entmax15`
    **options
        those of ``softmax.loss``, and the mapping's parameter by its name

    Returns
    -------
    as in ``softmax.loss``

    Examples
    --------
    >>> fenchel_young_loss(torch.tensor([[2.0, 1.6, -1.0]]), torch.tensor([0]), "entmax", alpha=2)
    tensor(0.0900)
    """
    name, value = chosen("fenchel_young_loss()", mapping, options, LOSS_OPTIONS)
    return apply_loss(name, z, y, value, dim, **options)
