"""The output layer of a model of ``transformers``, screened while ``generate`` runs.

`pyentmax.torch.transformers.screen_head` puts it there. The layer gives a placeholder and keeps
the hidden states. When ``generate`` hands the scores to its processors, those that the rule may
need take its place, and −∞ stands for what is proved to be out: then the processors, softmax and
``torch.multinomial`` do what they always do. This module imports ``transformers``.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LogitsProcessorList

from pyentmax.sparse_attention.exact_heads import Head
from pyentmax.sparse_attention.few_queries import FEW
from pyentmax.torch.exact_heads import gumbel
from pyentmax.torch.screened import DTYPES, ScreenedRows

# Processors that change few words only, and which: those of the text, or of an attribute.
TOUCHED = {
    "RepetitionPenaltyLogitsProcessor": "text",
    "NoRepeatNGramLogitsProcessor": "text",
    "SequenceBiasLogitsProcessor": "sequence_bias",
    "NoBadWordsLogitsProcessor": "sequence_bias",
    "MinLengthLogitsProcessor": "eos_token_id",
    "MinNewTokensLengthLogitsProcessor": "eos_token_id",
    "ExponentialDecayLengthPenalty": "eos_token_id",
    "SuppressTokensLogitsProcessor": "suppress_tokens",
    "SuppressTokensAtBeginLogitsProcessor": "begin_suppress_tokens",
    "ForcedBOSTokenLogitsProcessor": "",  # whatever the scores are
    "ForcedEOSTokenLogitsProcessor": "",
}
WARPERS = ("TemperatureLogitsWarper", "TopKLogitsWarper", "MinPLogitsWarper")  # in this order
ROUNDING = 1e-5  # × temperature: what softmax and its quotients in float32 may be off by


class Rule(NamedTuple):
    """The k best words; those at most `margin` below the k-th; with Gumbel noise times a number."""

    k: int
    margin: float
    noise: float = 0.0


class ScreenedHead:
    """The head of a model, until `remove` is called."""

    def __init__(self, model: Any) -> None:
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        weight = getattr(head, "weight", None)
        if not isinstance(head, nn.Linear) or not hasattr(model, "_get_logits_processor"):
            raise TypeError(
                "model: expected one of transformers that generates, with a linear output layer, "
                f"got {type(model).__name__}"
            )
        if not isinstance(weight, Tensor) or weight.dtype not in DTYPES or not weight.is_cpu:
            raise TypeError("model: expected an output layer of a floating type on the CPU")
        self.model, self.head = model, head
        self._rule: Rule | None = None
        self._hidden: Tensor | None = None
        self._obstacle = ""  # in the arguments of the call
        self._made: Any = None  # from which memory, in which version
        self.active = True
        head.forward, model.generate = self._forward, self._generate
        model._get_logits_processor = self._get_processors
        model.screened_head = self

    def remove(self) -> None:
        """Give the model its own output layer back."""
        if self.active:
            for part, name in (
                (self.head, "forward"), (self.model, "generate"), (self.model, "screened_head"),
                (self.model, "_get_logits_processor"),
            ):  # fmt: skip
                delattr(part, name)
        self.active = False

    def _generate(self, *args: Any, **options: Any) -> Any:
        generate = type(self.model).generate
        named = inspect.signature(generate).bind_partial(self.model, *args, **options).arguments
        others = "assistant_model", "custom_generate"
        self._obstacle = next((name for name in others if named.get(name) is not None), "")
        try:
            return generate(self.model, *args, **options)
        finally:
            self._rule = self._hidden = None

    def _get_processors(self, *args: Any, **options: Any) -> Any:
        processors = type(self.model)._get_logits_processor(self.model, *args, **options)
        config = options.get("generation_config", args[0] if args else None)
        obstacle = self._obstacle
        self._rule, obstacle = (None, obstacle) if obstacle else rule_of(processors, config)
        if self._rule is None:
            if obstacle:
                warnings.warn(
                    f"screen_head: {obstacle} needs all scores, computed here", stacklevel=3
                )
            return processors
        return _Processors(processors, self)

    def _forward(self, hidden: Tensor) -> Tensor:
        if self._rule is None or not hidden.is_cpu:
            return type(self.head).forward(self.head, hidden)
        self._hidden = hidden[:, -1].detach()
        return hidden.new_ones(()).expand(*hidden.shape[:-1], self.head.out_features)

    @contextmanager
    def keeping(self, keep: str, temperature: float) -> Iterator[Callable[[Tensor], Tensor]]:
        """Inside the block the function turns the last logits into scores for a keep-set."""
        name, _, value = keep.partition("=")
        slack = ROUNDING * temperature
        if name == "top_k":
            self._rule = Rule(math.ceil(float(value)), slack)
        elif name == "min_p" and float(value) > 0:
            self._rule = Rule(1, slack - temperature * math.log(float(value)))
        screens = self._rule is not None
        try:
            yield lambda logits: self.scores(logits, [()] * len(logits)) if screens else logits
        finally:
            self._rule = self._hidden = None

    def _rows(self) -> ScreenedRows:
        weight = self.head.weight
        made = weight.data_ptr(), weight._version
        if self._made is None or self._made[0] != made:
            self._made = made, ScreenedRows(weight.detach())
        return self._made[1]

    def scores(self, placeholder: Tensor, touched: list[Any]) -> Tensor:
        """Scores that the rule may need, and those of words that processors touch; else −∞."""
        hidden, self._hidden = self._hidden, None
        if hidden is None or not bool((placeholder == 1).all()):
            raise ValueError(
                f"{type(self.model).__name__} changes its logits behind the output layer, as by a "
                "softcap, a scale or a bias: remove() the screened head"
            )
        rule, placeholder = self._rule, _wide(placeholder)
        assert rule is not None
        bias = None if self.head.bias is None else self.head.bias.detach().double().numpy()
        head = Head(_wide(hidden).numpy(), self._rows().screened, bias, 1.0)
        result = placeholder.new_full(placeholder.shape, -math.inf)
        added = None
        if rule.noise:  # the numbers that torch.multinomial will draw
            state = torch.get_rng_state()
            added = gumbel(placeholder.shape, None, torch.float32).mul_(rule.noise).numpy()
            torch.set_rng_state(state)
        if any(len(words) for words in touched):
            added = np.zeros(placeholder.shape, np.float32) if added is None else added
            for row, words in zip(added, touched, strict=True):
                row[words] = -np.inf
        entries = result.numpy()
        for i in range(0, len(entries), FEW):
            part = None if added is None else added[i : i + FEW]
            for row, own in zip(
                entries[i:], head.scored(rule.k, rule.margin, part, i), strict=False
            ):
                row[own[0]] = own[1]
        for row, words, x in zip(entries, touched, head.x, strict=True):
            if len(words):
                own = _wide(self.head.weight.detach()[torch.from_numpy(words)]).numpy() @ x
                row[words] = own if bias is None else own + bias[words]
        return result


class _Processors(LogitsProcessorList):
    """The processors of a call, behind the screened scores."""

    def __init__(self, processors: Any, head: ScreenedHead) -> None:
        super().__init__(processors)
        self._head = head

    def __call__(self, input_ids: Tensor, scores: Tensor, **options: Any) -> Tensor:
        size = scores.shape[-1]
        touched = [touched_words(self, ids, size) for ids in input_ids]
        return super().__call__(input_ids, self._head.scores(scores, touched), **options)


def touched_words(processors: Any, ids: Tensor, size: int) -> Any:
    """The words of one text whose scores processors may change, each once."""
    words: list[Any] = []
    for each in processors:
        name = TOUCHED.get(type(each).__name__)
        if name == "text":
            words.append(ids)
        elif name == "sequence_bias":
            words.append(torch.tensor([sequence[-1] for sequence in each.sequence_bias]))
        elif name:
            words.append(torch.as_tensor(getattr(each, name)).ravel())
    if not words:
        return np.empty(0, np.int64)
    own = np.unique(torch.cat([x.to("cpu", torch.int64) for x in words]).numpy())
    return own[(own >= 0) & (own < size)]


def rule_of(processors: Any, config: Any) -> tuple[Rule | None, str]:
    """The rule by which a call uses the scores; or None, and the name of what needs all of them."""
    mode = config.get_generation_mode()
    if mode not in ("greedy_search", "sample"):
        return None, str(getattr(mode, "value", mode))
    for name in ("output_scores", "output_logits", "is_assistant"):
        if getattr(config, name, False):
            return None, name
    names = [type(each).__name__ for each in processors]
    unknown = [name for name in names if name not in TOUCHED and name not in WARPERS]
    order = [WARPERS.index(name) for name in names if name in WARPERS]
    if unknown or order != sorted(set(order)):
        return None, (unknown or names)[0]
    own = {type(each).__name__: each for each in processors}
    temperature = float(own[WARPERS[0]].temperature) if WARPERS[0] in own else 1.0
    k = own[WARPERS[1]].top_k if WARPERS[1] in own else None
    min_p = own[WARPERS[2]].min_p if WARPERS[2] in own else 0.0
    if mode == "greedy_search":
        return Rule(1, 0.0), ""
    slack = ROUNDING * temperature
    if k is not None:
        return Rule(k, slack), ""
    if min_p > 0:
        return Rule(1, slack - temperature * math.log(min_p)), ""
    return Rule(1, slack, temperature), ""


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
