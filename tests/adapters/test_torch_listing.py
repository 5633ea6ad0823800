"""Models of Hugging Face's as the decoders take them, against enumeration without cache or batch.

The oracle reads each prefix alone, from its first token. Models are small and random, with 6 tokens
and outputs of at most 5; nothing is downloaded.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: pip install 'pyentmax[torch]'")
hub = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'pyentmax[transformers]'"
)

import pyentmax as pe  # noqa: E402
from pyentmax.seq2seq.decoding import (  # noqa: E402
    HypothesisTree,
    beam_search,
    exact_search,
    greedy_search,
    list_outputs,
)
from pyentmax.seq2seq.models import from_steps, from_transformers, hugging_face  # noqa: E402

pytestmark = pytest.mark.slow  # importing models takes seconds

TOKENS, LENGTH = 6, 5
PROMPTS = [[1, 3, 4], [1], [5, 5, 3, 4, 1]]
SPECIAL = {"vocab_size": TOKENS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, **SPECIAL}
GROUPED |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("ForCausalLM", GROUPED),
    "Gemma2": ("ForCausalLM", {**GROUPED, "head_dim": 4, "sliding_window": 4}),
    "GPT2": (
        "LMHeadModel",
        {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, **SPECIAL},
    ),
    "Bloom": ("ForCausalLM", {"hidden_size": 16, "n_layer": 2, "n_head": 4, **SPECIAL}),
    "T5": (
        "ForConditionalGeneration",
        {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
        | {**SPECIAL, "decoder_start_token_id": 0},
    ),
    "Bart": (
        "ForConditionalGeneration",
        {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
        | {"max_position_embeddings": 32, **SPECIAL, "decoder_start_token_id": 2},
    ),
    "Mamba": (
        "ForCausalLM",
        {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, **SPECIAL},
    ),
}
OUTPUTS = {  # with how many possible next tokens a list soon ends
    "entmax15": ({"mapping": "entmax15"}, [2, 3]),
    "sparsemax": ({"mapping": 2.0}, [2]),
    "min_p": ({"keep": "min_p=0.3"}, [2, 3]),
    "top_k": ({"keep": "top_k=2", "temperature": 0.8}, [2, 3, 4]),
}


KNOWN: dict[Any, dict[tuple[int, ...], np.ndarray]] = defaultdict(dict)


@functools.cache
def shared(name: str, dtype: Any = torch.float64) -> Any:
    """A model that no test changes."""
    return build(name, dtype)


def build(name: str, dtype: Any = torch.float64) -> Any:
    """A model with weights so large that its distributions are sharp."""
    suffix, sizes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(hub, name + suffix)(getattr(hub, f"{name}Config")(**sizes))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 1.5 if name == "T5" else 0.4)  # it divides its scores
    return model.eval().to(dtype)


def batch(prompts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as the decoders take them."""
    longest = max(map(len, prompts))
    source = np.array([prompt + [0] * (longest - len(prompt)) for prompt in prompts])
    return source, np.arange(longest) < np.array([[len(prompt)] for prompt in prompts])


def next_scores(model: Any, prompt: list[int], prefix: list[int]) -> np.ndarray:
    """Scores after a prefix, by one reading of everything, which is remembered."""
    if (known := KNOWN[model].get((*prompt, -1, *prefix))) is not None:
        return known
    if model.config.is_encoder_decoder:
        begun = torch.tensor([[model.config.decoder_start_token_id, *prefix]])
        ids = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": begun}
    else:
        ids = {"input_ids": torch.tensor([prompt + prefix])}
    with torch.no_grad():
        scores = model(**ids, use_cache=False).logits[0, -1].double().numpy()
    KNOWN[model][(*prompt, -1, *prefix)] = scores
    return scores


def enumerated(
    model: Any, prompt: list[int], rule: dict[str, Any], ends: list[int]
) -> tuple[dict[tuple[int, ...], float], float]:
    """Every possible string with its probability, and the mass of what is longer."""
    found: dict[tuple[int, ...], float] = {}
    longer = [0.0]

    def visit(prefix: list[int], mass: float) -> None:
        z, mask = next_scores(model, prompt, prefix) / rule.get("temperature", 1.0), None
        if "keep" in rule:
            name, value = rule["keep"].split("=")
            mask = getattr(pe.keep, name)(z, float(value))
        alpha = {"entmax15": 1.5, 2.0: 2.0}.get(rule.get("mapping", ""), 1.0)
        p = pe.entmax.reference(z, alpha, mask=mask)
        for token in np.flatnonzero(p).tolist():
            total = mass * p[token]
            if token in ends:
                found[tuple(prefix)] = found.get(tuple(prefix), 0.0) + total
            elif len(prefix) < LENGTH:
                visit([*prefix, token], total)
            else:
                longer[0] += total

    visit([], 1.0)
    return found, longer[0]


def assert_equal(result: Any, found: dict[tuple[int, ...], float], longer: float, atol: float):
    """A result lists every string with its probability, and claims no more."""
    assert_equal_lists(result, found, atol)
    assert result.exact == (longer == 0)


def assert_equal_lists(result: Any, found: dict[tuple[int, ...], float], atol: float):
    listed = {h.tokens: h.probability for h in result.hypotheses if h.finished}
    assert listed.keys() == found.keys()
    assert max([abs(listed[s] - found[s]) for s in found], default=0) < atol


CASES = [(name, output, True) for name in MODELS if name != "Mamba" for output in OUTPUTS]
CASES += [("Llama", "min_p", False), ("Bart", "entmax15", False), ("Mamba", "top_k", False)]


@pytest.mark.parametrize(("name", "output", "cache"), CASES)
def test_every_string_and_probability(name, output, cache):
    # Eager attention of padding is NaN in float64, since its softmax is of float32.
    dtype = torch.float32 if name == "Gemma2" else torch.float64
    (rule, ends), network = OUTPUTS[output], shared(name, dtype)
    model = from_transformers(network, eos=ends, cache=cache, **rule)
    source, mask = batch(PROMPTS)
    options = {"max_length": LENGTH, "keep_attention": False}
    exact = exact_search(model, source, mask, n_best=None, budget=10**5, width=7, **options)
    beams = beam_search(model, source, mask, beam=10**4, **options)
    atol = 1e-6 if name in ("Gemma2", "Mamba") else 1e-9
    for prompt, best_first, wide in zip(PROMPTS, exact, beams, strict=True):
        found, longer = enumerated(network, prompt, rule, ends)
        assert_equal(best_first, found, longer, atol)
        assert_equal(wide, found, longer, atol)
        assert best_first.mass_bound == pytest.approx(longer, abs=1e-5)
        if found:
            tree = HypothesisTree.build(best_first.hypotheses, str)
            assert tree.root.probability == pytest.approx(best_first.mass, abs=longer + 1e-9)


@pytest.mark.parametrize("name", ["Llama", "GPT2", "T5"])
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-6), (torch.float16, 0.01), (torch.bfloat16, 0.05)]
)
def test_smaller_types(name, dtype, atol):
    network = shared(name, dtype)
    rule, ends = {"keep": "top_k=2"}, [2, 3, 4]  # no threshold that rounding could cross
    outputs = list_outputs(network, PROMPTS, eos=ends, max_length=LENGTH, progress=False, **rule)
    for prompt, result in zip(PROMPTS, outputs, strict=True):
        found, longer = enumerated(network, prompt, rule, ends)
        assert_equal_lists(result, found, atol)
        assert result.complete == (longer == 0)


@pytest.mark.parametrize("name", ["Llama", "GPT2", "T5", "Bart"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_smaller_types_alone_and_without_cache(name, dtype):
    """Where the network computes the same, what is computed from its scores is exact."""
    network = shared(name, dtype)
    ends, listed = [2, 3], 0
    model = from_transformers(network, eos=ends, keep="top_k=3", cache=False)
    for prompt in PROMPTS:
        found, longer = enumerated(network, prompt, {"keep": "top_k=3"}, ends)
        [result] = list_outputs(model, [prompt], max_length=LENGTH, width=1, progress=False)
        assert_equal_lists(result, found, 1e-6)
        assert result.complete == (longer == 0)
        assert result.rest == pytest.approx(longer, abs=1e-6)
        listed += len(found)
    assert listed > 20


def test_list_is_what_generate_can_draw():
    network = build("GPT2", torch.float32)
    prompt = torch.tensor([[1, 3, 4]])
    options = {"temperature": 0.7, "keep": "min_p=0.2", "max_length": 3}
    [outputs] = list_outputs(network, prompt.numpy(), **options)
    finished = {h.tokens: h.probability for h in outputs.hypotheses}
    torch.manual_seed(0)
    drawn = network.generate(
        prompt.repeat(4000, 1), attention_mask=torch.ones(4000, 3, dtype=torch.long)
    , do_sample=True, temperature=0.7, min_p=0.2, top_k=0, max_new_tokens=4)  # fmt: skip
    counts: dict[tuple[int, ...], int] = {}
    for row in drawn[:, 3:].tolist():
        if 2 in row:
            string = tuple(row[: row.index(2)])
            counts[string] = counts.get(string, 0) + 1
    assert counts.keys() <= finished.keys()
    for string, p in finished.items():
        assert counts.get(string, 0) / 4000 == pytest.approx(p, abs=5 * math.sqrt(p / 4000) + 1e-3)


def test_generates_own_cuts_are_read_from_its_config():
    """It takes 50 tokens where nothing else is said, and what its config has."""
    config = hub.LlamaConfig(
        vocab_size=200, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    network = hub.LlamaForCausalLM(config).eval()
    words, sampled = torch.tensor([[5, 6]]), {"do_sample": True, "max_new_tokens": 1}
    for own, count in (({}, 50), ({"top_k": 9, "min_p": 0.1}, 9), ({"top_k": 0, "top_p": 0.2}, 0)):
        for name, value in {"top_k": None, "top_p": None, "min_p": None, **own}.items():
            setattr(network.generation_config, name, value)
        network.generation_config.temperature = 0.3
        model = from_transformers(network, keep="generate", eos=torch.tensor(2))
        assert model.eos == 2
        step, _ = model.step(model.encode(np.array([[5, 6]]), np.ones((1, 2), bool)), np.array([0]))
        drawn = network.generate(
            words.repeat(4000, 1), attention_mask=torch.ones(4000, 2, dtype=torch.long), **sampled
        )
        assert set(drawn[:, 2].tolist()) <= set(np.flatnonzero(step.support).tolist())
        assert step.support.sum() == count or count == 0 < step.support.sum() < 30
        share = np.bincount(drawn[:, 2].numpy(), minlength=200) / 4000
        np.testing.assert_allclose(share, np.exp(step.log_prob[0]), rtol=0, atol=0.03)
    network.generation_config.repetition_penalty = 1.2
    with pytest.raises(ValueError, match="generate also changes scores by repetition_penalty"):
        list_outputs(network, [[5]], keep="generate")
    with pytest.raises(ValueError, match="temperature: expected none with keep='generate'"):
        list_outputs(network, [[5]], keep="generate", temperature=0.5)


def test_what_a_tokenizer_returns_is_read():
    network, mask = build("Llama"), [[0, 1, 1], [1, 1, 1]]
    expected = list_outputs(network, [[3, 4], [3, 4, 5]], keep="top_k=2", max_length=2)
    inputs = hub.BatchEncoding({"input_ids": [[0, 3, 4], [3, 4, 5]], "attention_mask": mask})
    for convert in (lambda x: x, lambda x: x.convert_to_tensors("pt")):
        found = list_outputs(network, convert(inputs), keep="top_k=2", max_length=2)
        assert len(found) == 2
        for one, other in zip(found, expected, strict=True):
            assert [h.tokens for h in one.hypotheses] == [h.tokens for h in other.hypotheses]


def test_layers_that_share_keys_and_encoders_with_an_output_object():
    tiny = {"vocab_size": 6, "hidden_size": 16, "intermediate_size": 32, "head_dim": 8}
    tiny |= {"num_attention_heads": 2, "num_key_value_heads": 2, "eos_token_id": 2}
    tiny |= {"pad_token_id": 0}
    shared = hub.Gemma3nTextConfig(
        **{**tiny, "intermediate_size": [32] * 4}, num_hidden_layers=4, num_kv_shared_layers=2,
        vocab_size_per_layer_input=6, hidden_size_per_layer_input=8, laurel_rank=4,
        layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=4,
        activation_sparsity_pattern=[0.0] * 4,
    )  # fmt: skip
    part = hub.T5GemmaModuleConfig(**tiny, num_hidden_layers=2)
    both = hub.T5GemmaConfig(
        encoder=part, decoder=part, vocab_size=6, decoder_start_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    for network in (hub.Gemma3nForCausalLM(shared), hub.T5GemmaForConditionalGeneration(both)):
        network = network.double().eval()
        results = [
            list_outputs(model, [[3, 4, 5], [4, 5]], max_length=3)
            for cache in (True, False)
            for model in [from_transformers(network, keep="top_k=2", cache=cache)]
        ]
        for one, other in zip(*results, strict=True):
            found, expected = ({h.tokens: h.log_prob for h in x.hypotheses} for x in (one, other))
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
            assert "another probability" not in one.reason


def test_tensors_in_the_state_of_a_function():
    network = build("GPT2")
    table = torch.randn(TOKENS, TOKENS, generator=torch.manual_seed(1))

    def fn(prefixes, state):
        last = torch.as_tensor(prefixes[:, -1])
        seen = torch.zeros(len(prefixes), TOKENS) if state is None else state["seen"]
        seen = seen + table[last]
        return seen.to(torch.bfloat16), {"seen": seen}

    def alone(prefixes, state):
        seen = (
            table[torch.as_tensor(prefixes)[:, 1:]].sum(1) + table[torch.as_tensor(prefixes[:, 0])]
        )
        return seen.to(torch.bfloat16), None

    results = [
        exact_search(from_steps(f, eos=0, keep="top_k=2"), [[1], [3]], [[True]] * 2, n_best=None,
                     max_length=6, width=3)
        for f in (fn, alone)
    ]  # fmt: skip
    for one, other in zip(*results, strict=True):
        assert {h.tokens for h in one.hypotheses} == {h.tokens for h in other.hypotheses}
    assert network.device.type == "cpu"


# --- planted faults -------------------------------------------------------------------------------
def test_cache_that_is_not_reordered_prevents_the_claim(monkeypatch):
    network, prompts = build("GPT2"), [[1], [4], [1, 5]]
    with torch.no_grad():  # all positions after the fifth say that the text ends
        end = network.lm_head.weight[2]
        network.transformer.wpe.weight[5:] = 100 * (end - end.mean())
    rule = {"keep": "min_p=0.1"}
    outputs = list_outputs(network, prompts, eos=2, max_length=8, **rule)
    for prompt, result in zip(prompts, outputs, strict=True):
        found, longer = enumerated(network, prompt, rule, [2])
        assert longer == 0
        assert result.complete
        listed = {h.tokens: h.probability for h in result.hypotheses}
        assert listed.keys() == found.keys()
        assert max(abs(listed[s] - found[s]) for s in found) < 1e-9
    assert max(len(o.hypotheses) for o in outputs) > 10
    gather = hugging_face._Transformer.gather

    def not_reordered(self, chosen):
        wrong = [(part, np.arange(len(rows)) % len(part.ids)) for part, rows in chosen]
        return gather(self, chosen)._replace(cache=gather(self, wrong).cache)

    monkeypatch.setattr(hugging_face._Transformer, "gather", not_reordered)
    for wrong in list_outputs(network, prompts, eos=2, max_length=8, **rule):
        assert not wrong.complete
        assert wrong.rest == 1
        assert "when they are read again without the cache" in wrong.reason


# --- bad input ------------------------------------------------------------------------------------
def test_bad_models_and_inputs_are_refused():
    network = build("GPT2")
    with pytest.raises(ValueError, match="zeros are certain.*a softmax gives every string"):
        list_outputs(network, [[1]])
    with pytest.raises(ValueError, match="model: expected one without dropout, call model.eval"):
        list_outputs(build("GPT2").train(), [[1]], keep="top_k=2")
    with pytest.raises(ValueError, match="source: expected token ids from 0 to 5, got 6"):
        list_outputs(network, [[1, 6]], keep="top_k=2")
    for model, prompt, said in ((network, 32, 33), (network, 40, 40), (build("Bart"), 40, 40)):
        with pytest.raises(ValueError, match=f"{said} tokens, more than the .* positions, 32:"):
            list_outputs(model, [[1] * prompt], mapping=1.01, max_length=3)
    network.generation_config.eos_token_id = network.config.eos_token_id = None
    with pytest.raises(ValueError, match=r"eos: expected the id .*, got \[\]: without an end"):
        list_outputs(network, [[1]], keep="top_k=2")
    with pytest.raises(ValueError, match=r"scores: expected .* the end \(9\) among them"):
        list_outputs(network, [[1]], keep="top_k=2", eos=9)
    model = from_transformers(build("Mamba"), keep="top_k=2")
    with pytest.raises(ValueError, match="its cache has .* from_transformers.*, cache=False"):
        greedy_search(model, np.array([[1]]), np.array([[True]]))
    decoder = build("T5")
    decoder.generation_config.decoder_start_token_id = decoder.config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="decoder_start_token_id, .*but it is None"):
        list_outputs(decoder, [[1]], keep="top_k=2")


def test_tokenizer_of_the_library_works():
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate("? a . b c a2".split())}, "?")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = hub.PreTrainedTokenizerFast(tokenizer_object=words)
    network = build("Llama")
    for tokenizer in (words, fast):
        one, two = list_outputs(network, ["a b c", "a"], tokenizer, keep="top_k=2", max_length=3)
        [alone] = list_outputs(network, [[1, 3, 4]], keep="top_k=2", max_length=3)
        assert [h.tokens for h in one.hypotheses] == [h.tokens for h in alone.hypotheses]
        for text, hypothesis in zip(one.texts, one.hypotheses, strict=True):
            assert text == tokenizer.decode(list(hypothesis.tokens))
        assert two.total + two.rest == pytest.approx(1, rel=0, abs=1e-6)
