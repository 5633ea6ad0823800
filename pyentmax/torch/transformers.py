"""Sparse attention in the models of Hugging Face's ``transformers``, by one line.

After ``register("entmax")`` a model made with ``attn_implementation="entmax"`` calls
`pyentmax.torch.attention`, with masks that are True where a query sees a key. ``transformers`` is
imported by the functions, not by this module.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from pyentmax.sparse_attention.few_queries import FEW
from pyentmax.sparse_attention.route import MANY_KEYS
from pyentmax.torch.arguments import as_number
from pyentmax.torch.linear_loss import linear_loss
from pyentmax.torch.modules import AlphaEntmax
from pyentmax.torch.operations import PARAMETERS
from pyentmax.torch.sparse_attention import attention, attention_parameter

# By what a few models change their weights, next to position_bias, softcap and sinks (s_aux).
REFUSED = ("sinks", "alibi", "relative_position_bias", "head_mask", "block_indices")
# Names that `transformers` itself gives a meaning: each model of the process would change.
RESERVED = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
_NAMES: dict[str, None] = {}  # that `register` has given, in their order
NO_LAYER = (
    "no layer of {} looks its attention up by its name, so attn_implementation cannot change it"
)


def register(
    name: str = "entmax", alpha: float | None = None, *, mapping: Any = "entmax", **parameters: Any
) -> None:
    """Make ``attn_implementation=name`` mean attention with sparse weights.

    Parameters
    ----------
    name : str, default "entmax"
    alpha : float, default 1.5
        of each layer that has no attribute ``alpha``; see `learn_alpha`
    mapping, **parameters : as in `pyentmax.torch.attention`

    Raises
    ------
    ImportError
        if ``transformers`` cannot be imported
    ValueError, TypeError
        if the name is one of ``transformers``' own, or α is not a number above 0

    Called again it changes the setting of all models that have this implementation. Padding,
    windows, grouped heads, dropout, position biases, softcaps, sinks and ``output_attentions=True``
    are supported. A model whose layers do not look their attention up by its name gets an error
    when it asks for a mask.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM  # doctest: +SKIP
    >>> register("entmax", alpha=1.25)  # doctest: +SKIP
    >>> config = LlamaConfig(num_hidden_layers=2)  # doctest: +SKIP
    >>> LlamaForCausalLM._from_config(config, attn_implementation="entmax")  # doctest: +SKIP
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError(
            f"pyentmax.torch.transformers needs transformers, which cannot be imported ({error}): "
            "pip install 'pyentmax[transformers]'"
        ) from error
    if name in RESERVED or "/" in name or "|" in name:
        raise ValueError(f"name must not be one of transformers' own, got {name!r}: try 'entmax'")
    # An error now, not in the first call.
    mapping, parameter = attention_parameter(mapping, alpha, None, parameters)
    if PARAMETERS[mapping] == "alpha" and not isinstance(parameter, Tensor):
        if not as_number(parameter, "alpha") > 0:
            raise ValueError(f"alpha must be above 0, got {parameter}")
    setting = {"mapping": mapping, "alpha": alpha, **parameters}
    _NAMES[name] = None
    AttentionInterface.register(name, partial(_attend, name, setting))
    AttentionMaskInterface.register(name, partial(_mask, name))


def learn_alpha(
    model: nn.Module, alpha: float = 1.5, *, per_head: bool = True
) -> list[nn.Parameter]:
    """Give each attention layer of a model an α that is learned, one for each head or for all.

    Parameters
    ----------
    model : a model of ``transformers``
    alpha : float in (1, 2), default 1.5
        the initial value
    per_head : bool, default True

    Returns
    -------
    list of Parameters
        a of each layer's ``alpha``, an `AlphaEntmax` with α = 1 + σ(a). They are among the model's
        parameters, and are small enough to want a rate of their own.

    Raises
    ------
    ValueError
        if α is not in (1, 2), or no layer has an implementation that `register` has named: layers
        that run another, as those of another part of the model, get none
    """
    if not 1 < alpha < 2:
        raise ValueError(f"a learned alpha must begin in (1, 2), got {alpha:g}")
    layers = [x for x in attention_layers(model) if x.config._attn_implementation in _NAMES]
    if not layers:
        raise ValueError(
            f"no layer has an implementation that register has named ({', '.join(_NAMES)}): call "
            "model.set_attn_implementation(name) before"
        )
    for layer in layers:
        heads = _heads(layer) if per_head else 1
        start = torch.full((heads,), alpha - 1, dtype=torch.float64, device="cpu").logit()
        held = [*layer.parameters(), *layer.buffers(), *model.parameters(), *model.buffers()]
        # Of quantised layers neither need be floating, or be there at all.
        weight = next((x for x in held if x.is_floating_point()), start.float())
        dtype = torch.promote_types(weight.dtype, torch.float32)
        layer.alpha = AlphaEntmax(heads, a=start).to(held[0].device if held else "cpu", dtype)
    return [layer.alpha.a for layer in layers]


def attention_layers(model: nn.Module) -> list[Any]:
    """The layers that look their attention up by its name; a ValueError if there is none."""
    layers = [
        layer
        for layer in model.modules()
        if "get_interface" in inspect.unwrap(type(layer).forward).__code__.co_names
    ]
    if not layers:
        raise ValueError(NO_LAYER.format(type(model).__name__))
    return layers


def ScreenedCache(config: Any = None) -> Any:  # noqa: N802 - a cache, named as those of transformers
    """A cache for ``generate`` whose keys are `ScreenedRows`, so that most are read in 8 bits only.

    A model with ``attn_implementation="entmax"`` that has it as cache,
    ``model.generate(words, cache=ScreenedCache(model.config))``, writes what it writes with its own
    cache; on the CPU, in float32 or float64, it takes less time from some thousand keys on.
    ``past_key_values=`` is the argument's name up to ``transformers`` 5.23. Layers that slide over
    a window, and calls that learn, are as in a ``DynamicCache``.

    Parameters
    ----------
    config : a model's configuration, optional
        says which layers slide; without it none does, which takes memory, and changes no result

    Returns
    -------
    transformers.Cache
        which beams may reorder; its memory grows to twice what it holds

    Raises
    ------
    ImportError
        if ``transformers`` cannot be imported

    Examples
    --------
    >>> model.generate(words, cache=ScreenedCache(model.config))  # doctest: +SKIP
    """
    from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

    from pyentmax.torch.screened_cache import ScreenedLayer

    if config is None:
        return Cache(layer_class_to_replicate=ScreenedLayer)
    layers = DynamicCache(config=config).layers
    return Cache([ScreenedLayer() if type(x) is DynamicLayer else x for x in layers])


class LinearLossMixin:
    """Train a causal model through `linear_loss`: a mixin for ``transformers.Trainer``.

    It stands before ``Trainer`` among the bases of a class, whose ``mapping`` and ``parameters``
    name the mapping. The labels of all accumulated batches and devices divide the loss, and labels
    are smoothed, as the Trainer does it. There is no tensor of all logits, except in evaluations. A
    bias, a constant factor and a softcap after the last product are applied.

    Raises
    ------
    NotImplementedError
        in a step, of a model that does not predict the next token, or whose logits are not those of
        a ``torch.nn.Linear`` with such changes: one with an adapter in it, or sharded

    Examples
    --------
    >>> from transformers import Trainer  # doctest: +SKIP
    >>> class SparseTrainer(LinearLossMixin, Trainer):  # doctest: +SKIP
    ...     mapping, parameters = "entmax", {"alpha": 1.3}
    """

    mapping: str = "entmax15"
    parameters: Mapping[str, Any] = MappingProxyType({})

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "compute_loss_func": self._loss})

    def compute_loss(
        self: Any, model: Any, inputs: Any, return_outputs: bool = False, *n: Any, **num: Any
    ) -> Any:
        """As the Trainer's. Where no outputs are returned, the logits of one position are made."""
        self._model, count = self.accelerator.unwrap_model(model), None if return_outputs else 1

        def keep(module: nn.Module, args: Any) -> Any:
            self._hidden = args[0]
            return (args[0][:, :count],)

        with self._model.get_output_embeddings().register_forward_pre_hook(keep):
            return super().compute_loss(model, inputs, return_outputs, *n, **num)  # type: ignore[misc]

    def _loss(self: Any, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        head, x = self._model.get_output_embeddings(), self.__dict__.pop("_hidden")
        scale, cap = _scale_and_softcap(self._model, head, x[:, :1], outputs["logits"][:, :1])
        mean = num_items_in_batch is None
        loss = linear_loss(
            scale * x[:, :-1], head.weight, labels[:, 1:], self.mapping, softcap=cap,
            linear_bias=None if head.bias is None else scale * head.bias, ignore_index=-100,
            reduction="mean" if mean else "sum", label_smoothing=self.args.label_smoothing_factor,
            **self.parameters,
        )  # fmt: skip
        return loss if mean else loss / num_items_in_batch


def _scale_and_softcap(model: Any, head: Any, x: Tensor, logits: Tensor) -> tuple[Any, Any]:
    """The scale and soft cap of a model's scores, computed from some states and their logits."""
    cap, error = getattr(model.config.get_text_config(), "final_logit_softcapping", None), math.inf
    if type(head) is nn.Linear and type(head.weight) is nn.Parameter:
        with torch.no_grad():
            z = nn.functional.linear(x.to(head.weight.dtype), head.weight, head.bias).double()
            scale = 1.0 if cap else float(((z * logits).sum() / z.square().sum()).nan_to_num(1.0))
            error = (logits - (cap * torch.tanh(z / cap) if cap else scale * z)).norm()
    predicts = "" if model.config.is_encoder_decoder else model.loss_function.__name__
    if (
        predicts == "ForCausalLMLoss" and error <= 0.01 * logits.double().norm()
    ):  # bfloat16 rounds, too
        return scale, cap
    raise NotImplementedError(
        f"{type(model).__name__} does not predict the next token by a torch.nn.Linear, a factor "
        f"and a softcap alone; its head is {type(head).__name__}: take a loss of its logits, such "
        "as pyentmax.torch.entmax15_loss, or merge an adapter before"
    )


def screen_head(model: Any) -> Any:
    """Let ``generate`` read most of a model's output layer in 8 bits, and write what it writes.

    Greedy decoding, ``top_k``, ``min_p``, ``temperature``, plain sampling and their combinations
    choose between few words; the others are proved to be out, and get −∞. After
    ``torch.manual_seed`` the ids are the same for an output layer in float32; one of a half type
    chooses by products in float32, where its own rounding would make words tie. Repetition
    penalties, banned words and a minimal length are supported. A call that needs all scores, by
    ``top_p``, beams, an assistant, ``output_scores`` or another processor, computes them, and says
    so in a warning.

    Parameters
    ----------
    model : a model of ``transformers`` with a linear output layer, on the CPU

    Returns
    -------
    object with a method ``remove()``, which undoes it

    Raises
    ------
    TypeError
        if the model has no such layer
    ImportError
        if ``transformers`` cannot be imported
    ValueError
        in ``generate``, if the model changes its logits behind the layer, as by a softcap

    Examples
    --------
    >>> screened = screen_head(model)  # doctest: +SKIP
    >>> model.generate(words, do_sample=True, top_k=50)  # doctest: +SKIP
    >>> screened.remove()  # doctest: +SKIP
    """
    from pyentmax.torch.screened_head import ScreenedHead

    return ScreenedHead(model)


def _heads(layer: Any) -> int:
    for name in ("num_heads", "num_attention_heads", "n_heads"):
        if hasattr(layer, name):
            return int(getattr(layer, name))
    return int(layer.config.num_attention_heads)


def _mask(name: str, *args: Any, config: Any = None, **options: Any) -> Tensor | None:
    """PyTorch's own mask: True where a query sees a key, or None where all see all before them."""
    from transformers import AutoModel
    from transformers.masking_utils import sdpa_mask

    if not torch.compiler.is_compiling():
        # Such a model would add the mask to its scores, as 0 and 1, and call softmax.
        # These names are private: where a version lacks them, only this check is skipped.
        model = getattr(AutoModel, "_model_mapping", {}).get(type(config), None)
        can_set = getattr(model, "_can_set_attn_implementation", None)
        if model is not None and can_set is not None and not can_set():
            raise NotImplementedError(NO_LAYER.format(model.__name__))
    # The layers of a part have its configuration, and the part may be of another kind of model.
    parts = [getattr(config, part, config) for part in getattr(config, "sub_configs", ())]
    if not all(_says_causality(type(part)) for part in (config, *parts)):
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = sdpa_mask(*args, **options)
    return mask


@torch.compiler.assume_constant_result
@functools.cache
def _says_causality(config: type) -> bool:
    """Whether `is_causal` of a model's layers says what a mask that is left out would.

    ``transformers`` asks that of models that support its "sdpa", and tests it; the layers of others
    may lack the attribute, or have it wrong.
    """
    from transformers import PreTrainedModel

    models, seen = [PreTrainedModel], []
    while models:
        model = models.pop()
        models += model.__subclasses__()
        if model.config_class is config:
            seen.append(bool(model._supports_sdpa))
    return bool(seen) and all(seen)


def _collected() -> bool:
    """Whether weights are asked for: not all models hand the option down to their layers."""
    if torch.compiler.is_compiling():
        return False
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # it is private, and may move
        return False
    return any("attentions" in name for name in _active_collector.get() or ())


def _attend(
    name: str,
    setting: dict[str, Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as the layers of ``transformers`` call it: (B, H, T, d) in, (B, T, H, d) out."""
    for refused in REFUSED:
        if others.get(refused) is not None:
            raise NotImplementedError(
                f"{type(module).__name__} calls its attention with {refused}, which {name!r} does "
                'not have: set attn_implementation="eager"'
            )
    # A mask says what is seen; without one a single query, the last of a cache, sees all. Where the
    # mask cannot have been left out for being causal, that there is none means that all is seen.
    causal = attention_mask is None and query.shape[2] > 1
    if causal and is_causal is not None:
        causal = bool(is_causal)
    elif causal:
        config: Any = getattr(module, "config", None)
        causal = _says_causality(type(config)) and bool(getattr(module, "is_causal", True))
    mask, bias = attention_mask, position_bias
    if mask is not None and mask.dtype != torch.bool:  # a model's own, to be added
        mask, bias = None, mask if bias is None else bias + mask
    alpha = getattr(module, "alpha", None)
    if alpha is not None and setting["mapping"] == "entmax":
        setting = {**setting, "alpha": alpha() if isinstance(alpha, nn.Module) else alpha}
    packed = others.get("cu_seq_lens_q"), others.get("cu_seq_lens_k")
    cu_seqlens = None if packed[0] is None or packed[1] is None else packed
    with_weights = bool(others.get("output_attentions")) or _collected()
    dropout = dropout if module.training else 0.0
    if not (softcap or cu_seqlens or dropout or with_weights):
        key = _screened(query, key, setting, bias, s_aux)
    result: Any = attention(
        query, key, value, mask=mask, bias=bias, causal=causal, scale=scaling, softcap=softcap,
        sink=s_aux, cu_seqlens=cu_seqlens, dropout=dropout, return_weights=with_weights, **setting,
    )  # fmt: skip
    output, weights = result if with_weights else (result, None)
    return output.transpose(1, 2).contiguous(), weights and weights.to_dense()


def _screened(query: Tensor, key: Tensor, setting: dict[str, Any], *others: Any) -> Any:
    """The `ScreenedRows` of a key from a `ScreenedCache`, where they serve; else the key."""
    rows, alpha = getattr(key, "screened", None), setting["alpha"]
    if rows is None or query.shape[2] > FEW or key.shape[2] < MANY_KEYS:
        return key
    learned = [x for x in (query, alpha, *others) if isinstance(x, Tensor) and x.requires_grad]
    if torch.is_grad_enabled() and learned:
        return key
    if setting["mapping"] != "entmax":
        return rows if setting["mapping"] in ("entmax15", "sparsemax") else key
    alpha = torch.as_tensor(1.5 if alpha is None else alpha)
    return rows if bool(((alpha > 1) & (alpha <= 2)).all()) else key
