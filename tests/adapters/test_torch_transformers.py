"""Hugging Face's models with sparse attention, compared with their own eager attention.

The oracle is each model's eager attention with softmax replaced by a mapping of `pyentmax.torch`:
all weights, the library's own masks, caches, biases, softcaps and dropout. Models are small and
random, in float64; nothing is downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")
hub = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'pyentmax[transformers]'"
)

import pyentmax.torch as pt  # noqa: E402
from pyentmax.torch import transformers as adapter  # noqa: E402
from pyentmax.torch.transformers import (  # noqa: E402
    LinearLossMixin,
    ScreenedCache,
    attention_layers,
    learn_alpha,
    register,
)

pytestmark = pytest.mark.slow  # importing models takes seconds

EXACT = {"rtol": 1e-9, "atol": 1e-10}  # of float64, through a few layers
WORDS = 40
SIZES = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("ForCausalLM", {**GROUPED, **SPECIAL}),
    "Qwen3": ("ForCausalLM", {**GROUPED, **SPECIAL}),
    "Gemma2": (
        "ForCausalLM",
        {**GROUPED, **SPECIAL, "sliding_window": 5, "attn_logit_softcapping": 0.5},
    ),
    "GptOss": (  # with sinks; a single expert, so that softmax is nowhere else
        "ForCausalLM",
        {**GROUPED, **SPECIAL, "sliding_window": 5, "num_local_experts": 2}
        | {"num_experts_per_tok": 1, "experts_implementation": "eager"},
    ),
    "GPT2": (
        "LMHeadModel",
        {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        | {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, **SPECIAL},
    ),
    "Bert": ("ForMaskedLM", {**SIZES, **NO_DROPOUT}),
    "ModernBert": (
        "ForMaskedLM",
        {**SIZES, **SPECIAL, "local_attention": 6, "global_attn_every_n_layers": 2}
        | {"cls_token_id": 1, "sep_token_id": 2},
    ),
    "Bart": (
        "ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 48}
        | {"decoder_ffn_dim": 48, "dropout": 0.0, "attention_dropout": 0.0, **SPECIAL}
        | {"decoder_start_token_id": 2, "forced_eos_token_id": None},
    ),
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
        | {"num_heads": 4, "dropout_rate": 0.0, "pad_token_id": 0, "decoder_start_token_id": 0},
    ),
    "ViT": (
        "ForImageClassification",
        {**SIZES, **NO_DROPOUT, "image_size": 16, "patch_size": 4, "num_labels": 5},
    ),
}
LEFT_PADDED = torch.tensor([[0, 0, 0, 7, 4, 9, 30, 5], [3, 8, 5, 21, 6, 4, 12, 11]])


def model(name: str, **changes: Any) -> Any:
    """A model with weights large enough for attention to be sparse."""
    ending, settings = MODELS[name]
    config = getattr(hub, f"{name}Config")(**settings | changes)
    torch.manual_seed(0)
    made = getattr(hub, name + ending)._from_config(config, attn_implementation="entmax").double()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter *= 6
    return made.eval()


def inputs(name: str) -> dict[str, Any]:
    """Three examples, padded on the right to 12 words."""
    generator = torch.Generator().manual_seed(0)
    if name == "ViT":
        pixels = torch.randn(3, 3, 16, 16, generator=generator, dtype=torch.float64)
        return {"pixel_values": pixels, "labels": torch.tensor([0, 1, 2])}
    words = torch.randint(3, WORDS, (3, 12), generator=generator)
    seen = torch.arange(12) < torch.tensor([12, 9, 5])[:, None]
    labels = torch.where(seen, words, -100)
    if name in ("Bart", "T5"):
        labels = torch.randint(3, WORDS, (3, 7), generator=generator)
    return {"input_ids": words * seen, "attention_mask": seen.long(), "labels": labels}


@contextmanager
def dense(made: Any, monkeypatch: pytest.MonkeyPatch, alpha: float = 1.5) -> Iterator[None]:
    """The model with its eager attention, and α-entmax for softmax."""

    def mapping(z: Any, dim: int = -1, dtype: Any = None) -> Any:
        return pt.entmax(z, alpha, dim)

    with monkeypatch.context() as patched:
        patched.setattr(torch.nn.functional, "softmax", mapping)
        made.set_attn_implementation("eager")
        yield
        made.set_attn_implementation("entmax")


def loss_and_gradients(made: Any, batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    made.zero_grad()
    loss = made(**batch).loss
    loss.backward()
    named = made.named_parameters()
    return loss, {name: x.grad.clone() for name, x in named if x.grad is not None}


@pytest.fixture(autouse=True)
def registered() -> None:
    register("entmax")


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_equal_dense_entmax(name: str, monkeypatch: Any) -> None:
    made, batch = model(name), inputs(name)
    made.train()
    loss, gradients = loss_and_gradients(made, batch)
    with dense(made, monkeypatch):
        expected, expected_gradients = loss_and_gradients(made, batch)
    torch.testing.assert_close(loss, expected, **EXACT)
    assert gradients.keys() == expected_gradients.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[key], **EXACT)
    register("entmax", alpha=1)
    assert (made(**batch).loss - expected).abs() > 1e-5  # softmax is another model


@pytest.mark.parametrize("name", MODELS)
def test_output_attentions_are_those_of_eager(name: str, monkeypatch: Any) -> None:
    made, batch = model(name), inputs(name)
    found = made(**batch, output_attentions=True)
    with dense(made, monkeypatch):
        expected = made(**batch, output_attentions=True)
    names = [key for key in expected if key.endswith("attentions") and expected[key]]
    assert names
    seen = batch.get("attention_mask")
    for key in names:
        for weights, their_weights in zip(found[key], expected[key], strict=True):
            if seen is not None and weights.shape[-2] == seen.shape[-1]:
                rows = seen.bool()[:, None, :, None]  # what padding attends to is nobody's concern
                weights, their_weights = weights * rows, their_weights * rows
            torch.testing.assert_close(weights, their_weights, **EXACT)
            assert (weights == 0).double().mean() > 0.05
    assert made(**batch)["logits"].shape == found["logits"].shape


def test_additive_masks_of_four_dimensions() -> None:
    made, words = model("Llama"), inputs("Llama")["input_ids"][:1]
    seen = torch.ones(1, 1, 12, 12, dtype=torch.bool).tril()
    seen[..., 6:, 2] = False
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min).double()
    expected = made(words, attention_mask=seen).logits
    torch.testing.assert_close(made(words, attention_mask=added).logits, expected, **EXACT)


def test_dropout_in_training_only(monkeypatch: Any) -> None:
    made, batch = model("Llama", attention_dropout=0.4), inputs("Llama")
    calm = made(**batch).loss
    made.train()
    torch.manual_seed(3)
    loss = made(**batch).loss
    with dense(made, monkeypatch):
        torch.manual_seed(3)
        torch.testing.assert_close(loss, made(**batch).loss, **EXACT)
    assert loss != calm == made.eval()(**batch).loss


CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "none": {"use_cache": False},
}


@pytest.mark.parametrize(
    "case",
    ["Llama dynamic 1", "Llama static 2", "Llama none 1", "GPT2 static 1", "Gemma2 static 1"]
    + ["Bart dynamic 2", "T5 dynamic 1"],
)
def test_generate_equals_dense_entmax(case: str, monkeypatch: Any) -> None:
    name, cache, beams = case.split()
    made, words = model(name), LEFT_PADDED
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "num_beams": int(beams), **CACHES[cache]}
    options |= {"attention_mask": (words != 0).long(), "output_scores": True}
    found = made.generate(words, return_dict_in_generate=True, **options)
    with dense(made, monkeypatch):
        expected = made.generate(words, return_dict_in_generate=True, **options)
    assert (found.sequences == expected.sequences).all()
    for scores, their_scores in zip(found.scores, expected.scores, strict=True):
        torch.testing.assert_close(scores, their_scores, **EXACT)


HOW = {
    "greedy": {},
    "sampled": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 2, "do_sample": True},
    "drafts": {"prompt_lookup_num_tokens": 3},  # crops what was not accepted
}


@pytest.fixture
def screens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of keys that were screened, where short contexts are."""
    lengths: list[int] = []
    attention = adapter.attention

    def counted(query: Any, key: Any, *args: Any, **options: Any) -> Any:
        lengths.extend([key.shape[-2]] * isinstance(key, pt.ScreenedRows))
        return attention(query, key, *args, **options)

    monkeypatch.setattr(adapter, "attention", counted)
    monkeypatch.setattr(adapter, "MANY_KEYS", 1)
    return lengths


@pytest.mark.parametrize(
    "case",
    [f"Llama, {how}" for how in HOW] + ["Gemma2, greedy", "Gemma2, beams", "GptOss, beams"],
)
def test_screened_cache_generates_the_same(case: str, screens: list[int]) -> None:
    name, how = case.split(", ")
    changes = {"attn_logit_softcapping": None} if name == "Gemma2" else {}
    made, words = model(name, **changes), LEFT_PADDED
    if how == "drafts":  # which are of one sequence, and repeat what was there
        words = torch.tensor([[3, 8, 5, 21, 3, 8, 5, 21, 3, 8]])
    options = {"max_new_tokens": 9, "min_new_tokens": 9, **HOW[how], "output_scores": True}
    options |= {"attention_mask": (words != 0).long(), "return_dict_in_generate": True}
    for config in (made.config, None):
        torch.manual_seed(1)
        expected = made.generate(words, **options)
        assert not screens
        torch.manual_seed(1)
        found = made.generate(words, **options, cache=ScreenedCache(config))
        assert (found.sequences == expected.sequences).all()
        for scores, their_scores in zip(found.scores, expected.scores, strict=True):
            torch.testing.assert_close(scores, their_scores, **EXACT)
        assert max(screens) == found.sequences.shape[1] - 1
        sliding = made.config.num_hidden_layers // 2 if config and name != "Llama" else 0
        kinds = [type(layer).__name__ for layer in found.cache.layers]
        assert kinds.count("DynamicSlidingWindowLayer") == sliding
        assert kinds.count("ScreenedLayer") == len(kinds) - sliding
        screens.clear()


def test_screened_cache_keeps_gradients(screens: list[int]) -> None:
    made, batch = model("Llama"), inputs("Llama")
    words, gradients = batch["input_ids"][:, :8], []
    for cache in (hub.DynamicCache(), ScreenedCache()):
        made.zero_grad()
        with torch.no_grad():
            made(words[:, :5], cache=cache)
        made(words[:, 5:7], cache=cache).logits.sum().backward()
        with torch.no_grad():
            made(words[:, 7:], cache=cache)
        gradients.append([p.grad.clone() for p in made.parameters()])
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, **EXACT)
    assert screens == [5, 5, 8, 8]  # of both layers, in the calls that do not learn


def test_screened_cache_takes_no_other_mappings(screens: list[int]) -> None:
    made, words = model("Llama"), LEFT_PADDED
    options = {"max_new_tokens": 4, "attention_mask": (words != 0).long()}
    for mapping, alpha in (("softmax", None), ("entmax", 1.0), ("entmax", 2.5)):
        register("entmax", mapping=mapping, alpha=alpha)
        expected = made.generate(words, **options)
        assert (made.generate(words, **options, cache=ScreenedCache()) == expected).all()
    assert not screens


def test_screened_cache_reserves_memory_and_follows_the_batch() -> None:
    cache = ScreenedCache()
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 3, 2, 60, 8, generator=generator)
    cache.update(keys[:, :, :10], values[:, :, :10, :5], 0)
    places = set()
    for i in range(10, 60):
        found = cache.update(keys[:, :, i : i + 1], values[:, :, i : i + 1, :5], 0)
        places.add(tuple(x.data_ptr() for x in found))
    assert len(places) < 10  # a concatenation would need a place for each
    assert torch.equal(found[0], keys)
    assert torch.equal(found[1], values[..., :5])
    cache.crop(-20)
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([0, 5]))
    order = [2, 0]
    assert torch.equal(cache.layers[0].keys, keys[order, :, :40])
    assert torch.equal(cache.layers[0].values, values[order, :, :40, :5])
    found = cache.update(keys[:2, :, :1], values[:2, :, :1, :5], 0)
    assert torch.equal(found[0], torch.cat([keys[order, :, :40], keys[:2, :, :1]], 2))
    assert torch.equal(found[0].screened.rows, found[0])
    cache.reset()
    assert cache.get_seq_length() == 0
    assert torch.equal(cache.update(keys, values, 0)[1], values)


def test_compiled_equals_eager() -> None:
    made, batch = model("Llama", num_hidden_layers=1), inputs("Llama")
    learn_alpha(made)
    loss, gradients = loss_and_gradients(made, batch)
    torch._dynamo.reset()
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    made.zero_grad()
    compiled_loss = compiled(**batch).loss
    compiled_loss.backward()
    torch.testing.assert_close(compiled_loss, loss, **EXACT)
    for key, parameter in made.named_parameters():
        if key in gradients:
            torch.testing.assert_close(parameter.grad, gradients[key], **EXACT)


@pytest.mark.parametrize("per_head", [True, False])
def test_learned_alpha_has_the_gradient_of_differences(per_head: bool) -> None:
    made, batch = model("Bart"), inputs("Bart")
    learned = learn_alpha(made, 1.4, per_head=per_head)
    sizes = {tuple(a.shape) for a in learned}
    assert len(learned) == 5  # one layer in the encoder; two in the decoder, with two attentions
    assert sizes == ({(4,), (2,)} if per_head else {(1,)})
    assert all(any(a is x for x in made.parameters()) for a in learned)
    loss, _ = loss_and_gradients(made, batch)
    register("entmax", alpha=3)  # which only layers without an α of their own take
    torch.testing.assert_close(made(**batch).loss, loss, **EXACT)
    direction = [torch.randn_like(a) for a in learned]
    slope = sum((a.grad * v).sum() for a, v in zip(learned, direction, strict=True))
    values = []
    for step in (1e-5, -2e-5):  # there, and as far to the other side
        with torch.no_grad():
            for a, v in zip(learned, direction, strict=True):
                a += step * v
            values.append(made(**batch).loss)
    difference = (values[0] - values[1]) / 2e-5
    torch.testing.assert_close(slope, difference, rtol=1e-5, atol=1e-8)


def test_saved_and_loaded(tmp_path: Any) -> None:
    made, batch = model("Llama"), inputs("Llama")
    made.save_pretrained(tmp_path)
    loaded = type(made).from_pretrained(tmp_path, attn_implementation="entmax")
    torch.testing.assert_close(loaded(**batch).loss, made(**batch).loss, **EXACT)
    learn_alpha(made, 1.2)
    learn_alpha(loaded)
    loaded.load_state_dict(made.state_dict())
    torch.testing.assert_close(loaded(**batch).loss, made(**batch).loss, **EXACT)


def test_other_mappings() -> None:
    register("top", mapping="topk_softmax", k=3)
    made = model("Bert")
    made.set_attn_implementation("top")
    weights = made(**inputs("Bert"), output_attentions=True).attentions[0]
    assert (weights > 0).sum(-1).max() == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        register("other", k=3)
    with pytest.raises(TypeError, match="missing a required argument: 'k'"):
        register("other", mapping="topk_softmax")


def test_unknown_changes_of_weights_are_refused() -> None:
    made = model("Llama")
    with pytest.raises(NotImplementedError, match="LlamaAttention calls its attention with alibi"):
        made(LEFT_PADDED, alibi=torch.zeros(1))


def test_models_that_do_not_look_it_up_are_refused() -> None:
    # Bloom adds its mask and ALiBi to the scores itself, and calls softmax.
    config = hub.BloomConfig(vocab_size=WORDS, hidden_size=32, n_layer=1, n_head=4)
    made = hub.AutoModel.from_config(config, attn_implementation="entmax")
    message = "no layer of BloomModel looks its attention up by its name"
    with pytest.raises(NotImplementedError, match=message):
        made(LEFT_PADDED)
    with pytest.raises(ValueError, match=message):
        attention_layers(made)
    with pytest.raises(ValueError, match=message):
        learn_alpha(made)
    with pytest.raises(ValueError, match=r"must begin in \(1, 2\), got 2"):
        learn_alpha(made, 2)


def test_missing_library_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'pyentmax\[transformers\]'$"):
        register()


def test_private_names_that_a_version_lacks(monkeypatch: Any) -> None:
    made, batch = model("Llama"), inputs("Llama")
    expected = made(**batch).logits
    monkeypatch.setitem(sys.modules, "transformers.utils.output_capturing", None)
    monkeypatch.delattr(hub.PreTrainedModel, "_can_set_attn_implementation")
    torch.testing.assert_close(made(**batch).logits, expected, **EXACT)


def test_packed_sequences_by_flash_attentions_keywords() -> None:
    register("entmax", alpha=1.5)
    config = hub.LlamaConfig(**GROUPED, **SPECIAL)
    model = hub.LlamaForCausalLM._from_config(config, attn_implementation="entmax").double().eval()
    words = torch.arange(3, 13)[None]
    ends = torch.tensor([0, 4, 10], dtype=torch.int32)
    positions = torch.cat([torch.arange(4), torch.arange(6)])[None]
    packed = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "position_ids": positions}
    expected = torch.cat([model(words[:, :4]).logits, model(words[:, 4:]).logits], 1)
    torch.testing.assert_close(model(words, **packed).logits, expected, **EXACT)
    by_positions = model(words, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(by_positions, expected, **EXACT)


ENCODER_DECODER = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": WORDS}
ENCODER_DECODER |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
ENCODER_DECODER |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "decoder_start_token_id": 2}
# Those whose layers say wrongly, or not at all, whether they are causal, and some that are right.
CAUSALITY: dict[str, dict[str, Any]] = {
    "Splinter": {**SIZES, "question_token_id": 3},
    "ClapText": SIZES,
    "AlignText": SIZES,
    "NllbMoe": {**ENCODER_DECODER, "num_experts": 2, "expert_capacity": 64},
    "PegasusX": {**ENCODER_DECODER, "num_global_tokens": 2, "block_size": 4},
    "BigBirdPegasus": {**ENCODER_DECODER, "attention_type": "original_full"},
    "MarkupLM": SIZES,
    "SwitchTransformers": MODELS["T5"][1] | {"num_experts": 2, "num_sparse_encoder_steps": 1},
    "LongT5": MODELS["T5"][1],
    "Gemma2": {**GROUPED, **SPECIAL, "sliding_window": 5},
    **{name: MODELS[name][1] for name in ("Llama", "GPT2", "Bert", "ModernBert", "Bart", "T5")},
}


@pytest.mark.parametrize("name", CAUSALITY)
def test_the_last_word_reaches_what_it_reaches_eagerly(name: str) -> None:
    register("soft", mapping="softmax")
    config = getattr(hub, f"{name}Config")(**CAUSALITY[name])
    torch.manual_seed(0)
    made = getattr(hub, f"{name}Model")._from_config(config, attn_implementation="eager")
    made = made.double().eval()
    words = torch.arange(4, 12)[None]
    changed = words.clone()
    changed[0, -1] = 30
    is_decoder = getattr(config, "is_encoder_decoder", False)

    def states(implementation: str) -> Any:
        made.set_attn_implementation(implementation)
        with torch.no_grad():
            return [
                made(input_ids=words, decoder_input_ids=x)[0] if is_decoder else made(x)[0]
                for x in (words, changed)
            ]

    expected, found = states("eager"), states("soft")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    moved = [(one - other).abs().amax(-1)[0] > 1e-9 for one, other in (found, expected)]
    assert torch.equal(*moved)
    assert moved[0][-1]


def test_masks_of_wholes_with_other_parts_are_written_out() -> None:
    """The layers of a part do not say what a mask left out for the whole would have been."""
    register("soft", mapping="softmax")

    class WholeConfig(hub.LlamaConfig):
        sub_configs = {"text_config": hub.SplinterConfig}  # noqa: RUF012

    class Whole(hub.LlamaPreTrainedModel):
        config_class = WholeConfig

    # Its layers' class has to be known, as where a model is made.
    assert Whole._supports_sdpa
    assert not hub.SplinterModel._supports_sdpa
    whole = WholeConfig(text_config=hub.SplinterConfig(**SIZES))
    alone = hub.LlamaConfig(**GROUPED)
    from transformers.masking_utils import create_causal_mask

    masks = []
    for config in (whole, alone):
        config._attn_implementation = "soft"
        masks.append(create_causal_mask(config, torch.zeros(1, 8, 16), None, None))
    assert masks[1] is None
    assert torch.equal(masks[0][0, 0], torch.ones(8, 8).tril().bool())


def test_hooks_of_a_layer_bring_its_alpha() -> None:
    # As offloading and FSDP do: the parameter is there during the call of its module only.
    made, batch = model("Llama"), inputs("Llama")
    learned = learn_alpha(made, 1.2)
    expected = made(**batch).loss
    for layer, a in zip(attention_layers(made), learned, strict=True):

        def bring(module: Any, _: Any, a: Any = a) -> None:
            module.a = a

        def take(module: Any, *_: Any, a: Any = a) -> None:
            module.a = torch.nn.Parameter(torch.full_like(a, torch.nan))

        take(layer.alpha)
        layer.alpha.register_forward_pre_hook(bring)
        layer.alpha.register_forward_hook(take)
    assert made(**batch).loss == expected


def test_layers_without_parameters_learn_alpha_as_exactly() -> None:
    made = model("Bert")
    for layer in attention_layers(made):
        for part in list(layer.children()):
            for name, parameter in list(part.named_parameters()):
                delattr(part, name)
                part.register_buffer(name, parameter.detach())  # as quantised layers have them
    torch.set_default_dtype(torch.bfloat16)
    try:
        learn_alpha(made, 1.25)
    finally:
        torch.set_default_dtype(torch.float32)
    for layer in attention_layers(made):
        torch.testing.assert_close(layer.alpha.alpha, torch.full((4,), 1.25).double(), **EXACT)


def test_names_and_alphas_are_checked_at_once() -> None:
    for name in ("eager", "sdpa", "flash_attention_2", "paged|entmax"):
        with pytest.raises(ValueError, match="name must not be one of transformers' own"):
            register(name)
    with pytest.raises(TypeError, match="alpha must be a number or a Tensor, got str"):
        register("other", alpha="1.5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"alpha must be above 0, got -1"):
        register("other", alpha=-1)


# --- training through linear_loss -----------------------------------------------------------------

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("ForCausalLM", {**GROUPED, **SPECIAL}),
    "Gemma2": ("ForCausalLM", {**GROUPED, **SPECIAL, "final_logit_softcapping": 2.0}),
    "Cohere": ("ForCausalLM", {**GROUPED, **SPECIAL, "logit_scale": 0.3}),
    "Granite": ("ForCausalLM", {**GROUPED, **SPECIAL, "logits_scaling": 3.0}),
    "Phi": ("ForCausalLM", {**SIZES, **SPECIAL}),  # a bias
}


def trainer(model: Any, folder: Any, accumulated: int = 1, base: Any = None, **options: Any) -> Any:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    words = torch.randint(3, WORDS, (8, 12), generator=torch.Generator().manual_seed(0))
    data = [{"input_ids": w, "labels": w.masked_fill(w < 3 * n, -100)} for n, w in enumerate(words)]
    arguments = hub.TrainingArguments(
        str(folder), per_device_train_batch_size=8 // accumulated, max_steps=1, logging_steps=1,
        gradient_accumulation_steps=accumulated, report_to=[], use_cpu=True, disable_tqdm=True,
        max_grad_norm=1e9, **options,
    )  # fmt: skip
    base = base or type("Sparse", (LinearLossMixin, hub.Trainer), {"mapping": "softmax"})
    return base(model=model, args=arguments, train_dataset=data, eval_dataset=data)


def model_with_head(name: str) -> Any:
    kind, settings = HEADS[name]
    torch.manual_seed(0)
    model = getattr(hub, name + kind)(getattr(hub, f"{name}Config")(**settings)).double()
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.weight.mul_(20)
        if head.bias is not None:
            head.bias.normal_()
    return model


@pytest.mark.parametrize("name", HEADS)
def test_mixin_trains_as_the_models_own_loss(name: str, tmp_path: Any) -> None:
    """Gradients were as many times too large as batches are accumulated; scales were left out."""
    logs, gradients = [], []
    for base, accumulated in ((hub.Trainer, 1), (None, 1), (None, 8)):
        model = model_with_head(name).train()
        run = trainer(model, tmp_path, accumulated, base, label_smoothing_factor=0.0)
        steps: list[Any] = []
        run.create_optimizer()
        run.optimizer.register_step_pre_hook(
            lambda *unused, model=model, steps=steps: steps.extend(
                p.grad.clone() for p in model.parameters() if p.grad is not None
            )
        )
        run.train()
        logs.append(run.state.log_history[0]["loss"])
        gradients.append(steps)
        if base is None:
            evaluated = run.evaluate()["eval_loss"]
            expected = trainer(model, tmp_path, 1, hub.Trainer).evaluate()["eval_loss"]
            assert evaluated == pytest.approx(expected, rel=1e-6, abs=0)
    assert logs[1:] == pytest.approx([logs[0]] * 2, rel=1e-6, abs=0)
    for found in gradients[1:]:
        for one, other in zip(found, gradients[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_mixin_predicts_all_logits_and_takes_parameters(tmp_path: Any) -> None:
    model = model_with_head("Llama").eval()
    own = {"mapping": "entmax", "parameters": {"alpha": 1.3}}
    run = trainer(model, tmp_path, 1, type("Sparse", (LinearLossMixin, hub.Trainer), own))
    found = run.predict(run.eval_dataset)
    words, labels = (torch.stack([x[n] for x in run.eval_dataset]) for n in ("input_ids", "labels"))
    logits = model(words).logits
    torch.testing.assert_close(torch.as_tensor(found.predictions), logits.detach())
    expected = pt.entmax.loss(logits[:, :-1], labels[:, 1:], 1.3, ignore_index=-100)
    assert found.metrics["test_loss"] == pytest.approx(expected.item(), rel=1e-6, abs=0)


def test_mixin_refuses_other_heads_and_models(tmp_path: Any) -> None:
    class Adapted(torch.nn.Linear):
        pass

    model = model_with_head("Llama")
    head = model.lm_head
    model.lm_head = Adapted(32, WORDS, bias=False).double()
    with pytest.raises(NotImplementedError, match="its head is Adapted"):
        trainer(model, tmp_path).train()
    model.lm_head = head
    head.register_forward_hook(lambda module, args, output: output.exp())
    with pytest.raises(NotImplementedError, match="a factor and a softcap alone"):
        trainer(model, tmp_path).train()
    bert = hub.BertForMaskedLM(hub.BertConfig(**SIZES))
    with pytest.raises(NotImplementedError, match="does not predict the next token"):
        trainer(bert, tmp_path).train()


def test_only_layers_with_this_attention_learn_alpha() -> None:
    """The vision tower's layers, which run SDPA, had parameters that nothing used."""
    register("entmax")
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 4, "image_size": 16, "patch_size": 8, "projection_dim": 32}
    config = hub.LlavaConfig(
        vision_config=hub.CLIPVisionConfig(**vision), image_token_id=39,
        text_config=hub.LlamaConfig(**GROUPED, **SPECIAL),
    )  # fmt: skip
    parts = {"text_config": "entmax", "vision_config": "sdpa"}
    made = hub.LlavaForConditionalGeneration._from_config(config, attn_implementation=parts)
    alphas, ids = learn_alpha(made), torch.tensor([[1, 39, 39, 39, 39, 5, 6, 7]])
    assert len(alphas) == 2
    made(input_ids=ids, pixel_values=torch.randn(1, 3, 16, 16), labels=ids).loss.backward()
    assert all(a.grad is not None for a in alphas)
    made.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match=r"no layer has an implementation .*entmax.*before"):
        learn_alpha(made)
