"""A model for the decoders from one of Hugging Face's ``transformers``.

A causal model reads the sources of a batch together, padded on the left, with positions that count
real tokens; prefixes of different lengths get caches that are padded in the same way. A model that
takes no ``position_ids``, and the decoder of an encoder-decoder model, would count the padding as
positions: their rows are read in parts of one length. An encoder reads sources padded on the right.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from pyentmax.seq2seq.models.encoder_decoder import check_sources
from pyentmax.seq2seq.models.outputs import OutputRule
from pyentmax.seq2seq.models.protocol import BoolArray, IntArray
from pyentmax.seq2seq.models.steps import StepModel, checked_ends

# Of a cache: keys and values by position, or nothing, in a layer that shares another's.
LAYERS = ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")
# What generate(do_sample=True) cuts to, in its order, and the keep-sets of these cuts.
CUTS = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "typical_p": "typical"}
CUTS |= {"epsilon_cutoff": "epsilon", "eta_cutoff": "eta"}
# What else changes its scores.
PROCESSORS = (
    "repetition_penalty encoder_repetition_penalty no_repeat_ngram_size top_h guidance_scale "
    "encoder_no_repeat_ngram_size bad_words_ids sequence_bias min_length min_new_tokens "
    "forced_bos_token_id forced_eos_token_id exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens"
).split()


def from_transformers(
    model: Any,
    *,
    mapping: str | float = "softmax",
    keep: str | None = None,
    temperature: float = 1.0,
    eos: int | Sequence[int] | None = None,
    cache: bool = True,
) -> StepModel:
    """A model for the decoders from a causal or encoder-decoder model of ``transformers``.

    A source is a prompt, of a causal model, or what the encoder reads; padding may be on either
    side. The scores are the model's logits, with no processor in between: what ``generate`` takes
    from its call and the model's generation config does not apply, unless ``keep="generate"``.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With a ``forward`` that returns ``logits``; in evaluation mode.
    mapping, keep, temperature : as in `from_steps`
        α-entmax or sparsemax for a model that was trained with such a loss. ``keep="generate"`` is
        the temperature and the cuts with which ``generate(do_sample=True)`` draws: those of the
        model's generation config, and 50 tokens where it has no ``top_k``. As
        ``generate(do_sample=True, temperature=0.7, min_p=0.05)`` draws, if the config has nothing
        else: ``temperature=0.7, keep="top_k=50,min_p=0.05"``.
    eos : int or sequence of int, optional
        The token that ends a string, or several; by default that of the generation config.
    cache : bool, default True
        Keep keys and values. False reads each prefix anew, which any model can do.

    Returns
    -------
    StepModel

    Raises
    ------
    ValueError
        If the model is in training mode, no token ends or begins a string, an argument is out of
        its range, or ``generate`` would change scores in other ways than by cuts; in a step, if a
        prefix has more tokens than the model has positions, or its cache cannot be rearranged.

    Examples
    --------
    >>> from transformers import LlamaConfig, LlamaForCausalLM  # doctest: +SKIP
    >>> model = LlamaForCausalLM(LlamaConfig()).eval()  # doctest: +SKIP
    >>> from_transformers(model, keep="min_p=0.1")  # doctest: +SKIP
    """
    if getattr(model, "training", False):
        raise ValueError("model: expected one without dropout, call model.eval() before")
    configs = [c for c in (getattr(model, "generation_config", None), model.config) if c]

    def configured(name: str) -> Any:
        return next((x for c in configs if (x := getattr(c, name, None)) is not None), None)

    if keep == "generate":
        if temperature != 1:
            raise ValueError("temperature: expected none with keep='generate', which has its own")
        keep, temperature = _cuts_of_generate(configs[0])
    ends = checked_ends(configured("eos_token_id") if eos is None else eos)
    rule = OutputRule(mapping, keep, temperature, ends)
    begin = rule.ends[0]
    if model.config.is_encoder_decoder:
        begin = configured("decoder_start_token_id")
        if begin is None:
            raise ValueError(
                "model: expected generation_config.decoder_start_token_id, the token that the "
                "decoder reads first, but it is None"
            )
    return StepModel(_Transformer(model, begin, cache, (keep or "", temperature)), rule, begin)


def _cuts_of_generate(config: Any) -> tuple[str | None, float]:
    """The keep-sets and the temperature of ``generate(do_sample=True)``."""
    if others := [x for x in PROCESSORS if getattr(config, x, None) not in (None, 0, 1)]:
        raise ValueError(
            f"keep: generate also changes scores by {', '.join(others)}, which are not cuts: set "
            "them to None in model.generation_config, and in generate"
        )
    values = {name: getattr(config, name, None) for name in CUTS}
    if values["top_k"] is None:
        values["top_k"] = 50
    cuts = [f"{CUTS[name]}={x}" for name, x in values.items() if x and (name == "top_k" or x < 1)]
    return ",".join(cuts) or None, getattr(config, "temperature", None) or 1.0


class _Part(NamedTuple):
    """Tensors with a row for each prefix. ``ids`` and ``mask`` include what is padded."""

    ids: Any
    mask: Any
    cache: Any
    encoded: tuple[Any, Any] | None  # the last layer of the encoder, and the mask of the source


class _Transformer:
    """A network that is a model of ``transformers``."""

    def __init__(self, model: Any, begin: int, cache: bool, kept: tuple[str, float]) -> None:
        self.model, self.begin, self.cache, self.kept = model, begin, cache, kept
        self.encodes = bool(model.config.is_encoder_decoder)
        self.size = model.get_input_embeddings().num_embeddings
        self.most = getattr(model.config, "max_position_embeddings", None)
        self.options = inspect.signature(model.forward).parameters
        # It was called past_key_values in the first versions 5 of transformers.
        self.cached = "cache" if "cache" in self.options else "past_key_values"
        # Of a log-probability per token, between two ways to read it.
        self.tolerance = 1e-3 if model.dtype.itemsize >= 4 else 0.3
        self.pads = not self.encodes and "position_ids" in self.options

    def start(self, source: IntArray, mask: BoolArray) -> tuple[list[Any], IntArray]:
        check_sources(source, mask, self.size)
        # Pad on the left for decoders, on the right for encoders: token 0 has their first position.
        order = np.argsort(mask != self.encodes, axis=1, kind="stable")
        mask = np.take_along_axis(mask, order, axis=1)
        source = np.where(mask, np.take_along_axis(source, order, axis=1), 0)
        rows, lengths = np.arange(len(source)), mask.sum(axis=1)
        self._check_length(lengths)
        if self.encodes:
            ids, unread = self._tensor(source[:, :0]), np.full(len(source), self.begin)
            return [(rows, _Part(ids, ids, None, self._encoded(source, mask)))], unread
        groups = [rows] if self.pads else [rows[lengths == n] for n in np.unique(lengths)]
        parts = []
        for rows in groups:
            last = slice(source.shape[1] - lengths[rows].max(), -1)
            part = _Part(
                self._tensor(source[rows, last]), self._tensor(mask[rows, last]), None, None
            )
            if part.ids.shape[1]:
                part = self._forward(part, part.ids)[1]
            parts.append((rows, part))
        return parts, source[:, -1]

    def read(self, part: _Part, tokens: IntArray) -> tuple[Any, _Part]:
        import torch

        new = self._tensor(tokens[:, None])
        ids = torch.cat([part.ids, new], dim=1)
        mask = torch.cat([part.mask, torch.ones_like(new)], dim=1)
        if self.most is not None and ids.shape[1] > self.most:
            self._check_length(mask.sum(1))
        return self._forward(part._replace(ids=ids, mask=mask), ids if part.cache is None else new)

    def key(self, part: _Part) -> Any:
        return (None if self.pads else part.ids.shape[1]), part.cache is None

    def gather(self, chosen: Sequence[tuple[_Part, IntArray]]) -> _Part:
        import torch

        parts, places = zip(*((part, self._tensor(rows)) for part, rows in chosen), strict=True)

        def rows_of(tensors: Sequence[Any]) -> list[Any]:
            return [x[place] for x, place in zip(tensors, places, strict=True)]

        ids, masks, caches, encoded = zip(*parts, strict=True)
        cache, one = None if caches[0] is None else _gathered(caches, rows_of), encoded[0]
        if one is not None:
            one = tuple(torch.cat(rows_of(group)) for group in zip(*encoded, strict=True))
        return _Part(_padded(rows_of(ids), 1), _padded(rows_of(masks), 1), cache, one)

    def reread(self, source: IntArray, strings: Sequence[Sequence[int]]) -> list[Any]:
        """Scores at each position of whole strings, from one reading without a cache."""
        begin = [self.begin] if self.encodes else source.tolist()
        longest = max(map(len, strings))
        ids = np.array([[*begin, *s, *[0] * (longest - len(s))] for s in strings])
        mask = np.arange(ids.shape[1]) < np.array([[len(begin) + len(s)] for s in strings])
        encoded = None
        if self.encodes:
            sources = np.tile(source, (len(strings), 1))
            encoded = self._encoded(sources, np.ones(sources.shape, bool))
        part = _Part(self._tensor(ids), self._tensor(mask), None, encoded)
        logits = self._logits(part, part.ids, longest + 1, use_cache=False).logits
        return [
            z[len(z) - longest - 1 :][: len(s) + 1] for z, s in zip(logits, strings, strict=True)
        ]

    def _check_length(self, lengths: Any) -> None:
        if self.most is not None and lengths.max() > self.most:
            raise ValueError(
                f"a prefix has {int(lengths.max())} tokens, more than the model has positions, "
                f"{self.most}: pass a smaller max_length, or shorter inputs"
            )

    def _tensor(self, x: Any) -> Any:
        import torch

        return torch.as_tensor(np.asarray(x, np.int64), device=self.model.device)

    def _encoded(self, source: IntArray, mask: BoolArray) -> tuple[Any, Any]:
        import torch

        ids, mask = self._tensor(source), self._tensor(mask)
        with torch.no_grad():
            return self.model.get_encoder()(input_ids=ids, attention_mask=mask)[0], mask

    def _forward(self, part: _Part, new: Any) -> tuple[Any, _Part]:
        """Scores after the last of the new tokens, and the part with their keys and values."""
        options: dict[str, Any] = {"use_cache": self.cache}
        if part.cache is not None:
            options[self.cached] = _copied(part.cache)
        head = getattr(self.model, "screened_head", None)  # of `pyentmax.torch.transformers`
        with nullcontext(lambda x: x) if head is None else head.keeping(*self.kept) as kept_scores:
            output = self._logits(part, new, 1, **options)
            scores = kept_scores(output.logits[:, -1])
        cache = getattr(output, self.cached, None) if self.cache else None
        if cache is not None:
            _check_cache(cache)
        return scores, part._replace(cache=cache)

    def _logits(self, part: _Part, new: Any, count: int, **options: Any) -> Any:
        """The model's output for the new tokens, with at least the last ``count`` scores."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        if part.encoded is not None:
            hidden, mask = part.encoded
            encoded = BaseModelOutput(last_hidden_state=hidden)
            options |= {"decoder_input_ids": new, "encoder_outputs": encoded}
            options["attention_mask"] = mask
        else:
            options |= {"input_ids": new, "attention_mask": part.mask}
            if self.pads:
                positions = (part.mask.cumsum(dim=1) - 1).clamp(min=0)
                options["position_ids"] = positions[:, -new.shape[1] :]
        if "logits_to_keep" in self.options:  # the scores of a prompt would fill memory
            options["logits_to_keep"] = count
        with torch.no_grad():
            return self.model(**options)


# --- caches ---------------------------------------------------------------------------------------
def _check_cache(cache: Any) -> None:
    """Refuse a cache whose layers are more than keys and values, since rows would share them."""
    layers = _halves(cache) and [x for half in _halves(cache) for x in half.layers]
    names = {type(layer).__name__ for layer in layers or getattr(cache, "layers", [cache])}
    if strange := sorted(names.difference(LAYERS)):
        raise ValueError(
            f"model: its cache has {', '.join(strange)}, which cannot be rearranged: "
            "from_transformers(model, ..., cache=False) reads each prefix anew"
        )


def _halves(cache: Any) -> list[Any]:
    """The caches of self-attention and of cross-attention, if there are two."""
    names = ("self_attention_cache", "cross_attention_cache")
    return [getattr(cache, name) for name in names if hasattr(cache, name)]


def _copied(cache: Any) -> Any:
    """A cache of the same tensors. What writes to it replaces them."""
    result = copy.copy(cache)
    if _halves(cache):
        result.self_attention_cache, result.cross_attention_cache = map(_copied, _halves(cache))
        result.is_updated = dict(cache.is_updated)
    else:
        result.layers = [copy.copy(layer) for layer in cache.layers]
    return result


def _gathered(caches: Sequence[Any], rows_of: Callable[[Sequence[Any]], list[Any]]) -> Any:
    """One cache of the rows that are chosen from several."""
    result = _copied(caches[0])
    if _halves(result):
        own, cross = zip(*map(_halves, caches), strict=True)
        result.self_attention_cache = _gathered(own, rows_of)
        result.cross_attention_cache = _gathered(cross, rows_of)
        return result
    for layer, *several in zip(result.layers, *(c.layers for c in caches), strict=True):
        if layer.is_initialized and layer.keys is not None:  # else it shares another's
            layer.keys = _padded(rows_of([x.keys for x in several]), -2)
            layer.values = _padded(rows_of([x.values for x in several]), -2)
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length = max(x.cumulative_length for x in several)
    return result


def _padded(tensors: Sequence[Any], axis: int) -> Any:
    """Tensors as the rows of one, padded in front to the longest."""
    import torch

    longest = max(x.shape[axis] for x in tensors)
    front = [0, 0] * (1 if axis == -2 else 0)
    pad = torch.nn.functional.pad
    padded = [pad(x, [*front, longest - x.shape[axis], 0]) for x in tensors]
    return padded[0] if len(padded) == 1 else torch.cat(padded)
