"""Exact heads of tensors: as arrays, as PyTorch draws, and in `generate`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pyentmax as pe
from pyentmax.engine.backends import choice

torch = pytest.importorskip("torch")
pt = pytest.importorskip("pyentmax.torch")

WORDS = 5000


def head(dtype: Any = None) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(0)
    x, rows, bias = (torch.randn(s, generator=generator) for s in ((11, 48), (WORDS, 48), WORDS))
    return (x / 2).to(dtype), rows.to(dtype), bias.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_words_are_those_of_all_scores(dtype: Any) -> None:
    x, rows, bias = head(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    z = 0.8 * (x.to(wide) @ rows.to(wide).T) + bias.to(wide)
    expected = z.topk(20)
    for matrix in (pt.ScreenedRows(rows), rows):
        options: dict[str, Any] = {"bias": bias, "scale": 0.8}
        words, scores = pt.linear_argmax(x, matrix, **options)
        assert torch.equal(words, z.argmax(-1))
        assert scores.dtype == wide
        words, scores, offsets = pt.linear_top_k(x, matrix, 20, **options)
        assert torch.equal(words.reshape(11, 20), expected.indices)
        torch.testing.assert_close(scores.reshape(11, 20), expected.values, rtol=1e-4, atol=1e-4)
        assert offsets.tolist() == list(range(0, 221, 20))
        near, _, offsets = pt.linear_min_p(x, matrix, 0.1, **options)
        sizes = (z >= z.max(-1, keepdim=True).values + np.log(0.1)).sum(-1)
        assert torch.equal(offsets.diff(), sizes)
        assert torch.equal(near[offsets[:-1]], z.argmax(-1))


def test_draws_are_those_of_multinomial() -> None:
    x, rows, bias = head(torch.float32)
    screened, generator = pt.ScreenedRows(rows), torch.Generator()
    z = (x @ rows.T + bias) / 0.7
    top = torch.where(z >= z.topk(9).values[:, -1:], z, -torch.inf)
    p = z.softmax(-1)
    near = torch.where(p >= 0.05 * p.amax(-1, keepdim=True), z, -torch.inf)
    for rule, scores in (({}, z), ({"top_k": 9}, top), ({"min_p": 0.05}, near)):
        for seed in range(20):
            options: dict[str, Any] = {**rule, "temperature": 0.7, "bias": bias}
            expected = torch.multinomial(
                scores.softmax(-1), 1, generator=generator.manual_seed(seed)
            )
            after = torch.rand(1, generator=generator)
            for matrix in (screened, rows):
                words, _ = pt.linear_sample(
                    x, matrix, generator=generator.manual_seed(seed), **options
                )
                assert torch.equal(words, expected[:, 0])
                assert torch.equal(torch.rand(1, generator=generator), after)


def test_wrong_arguments_say_what_to_do() -> None:
    x, rows, _ = head(torch.float32)
    with pytest.raises(TypeError, match="linear_argmax has no gradient"):
        pt.linear_argmax(x.requires_grad_(), rows)
    with torch.no_grad():
        assert pt.linear_argmax(x, rows)[0].shape == (11,)
    with pytest.raises(ValueError, match="k must be a whole number"):
        pt.linear_top_k(x.detach(), rows, 0)
    with pytest.raises(TypeError, match="on the CPU"):
        pt.linear_argmax(x.detach().to("meta"), rows)


def llama(**options: Any) -> Any:
    """A small model whose scores are sharp."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, bos_token_id=1,
        eos_token_id=5, **options,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model


def written(model: Any, ids: Any, **options: Any) -> Any:
    torch.manual_seed(3)
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, **options)


GREEDY: dict[str, Any] = {"do_sample": False}
DRAWN: dict[str, Any] = {"do_sample": True, "top_k": 0}
PENALISED: dict[str, Any] = {"repetition_penalty": 1.6}
CALLS: list[dict[str, Any]] = [
    GREEDY,
    DRAWN,
    DRAWN | {"temperature": 0.6},
    DRAWN | {"min_p": 0.1, "temperature": 1.3},
    DRAWN | {"top_k": 50},
    DRAWN | {"top_k": 20, "min_p": 0.02, "temperature": 1.4},
    GREEDY | PENALISED | {"no_repeat_ngram_size": 2},
    DRAWN | PENALISED,
    DRAWN | PENALISED | {"min_p": 0.3},
    DRAWN | PENALISED | {"top_k": 5},
    GREEDY | {"min_new_tokens": 6, "suppress_tokens": [11, 12]},
    GREEDY | {"forced_eos_token_id": 5, "exponential_decay_length_penalty": (3, 1.5)},
]


@pytest.mark.parametrize("tied", [False, True])
def test_generate_writes_the_same(tied: bool) -> None:
    model = llama(tie_word_embeddings=tied)
    ids = torch.randint(6, WORDS, (3, 7), generator=torch.Generator().manual_seed(1))
    best = model(ids).logits[:, -1].argmax(-1)
    ids[:, 2] = best  # so that a penalty hits the best word
    banned = {"bad_words_ids": [best[:1].tolist(), [8, int(best[1])], [9]]}
    calls = [*CALLS, GREEDY | banned, DRAWN | banned | {"min_p": 0.1}]
    expected = [written(model, ids, **options) for options in calls]
    screened, shapes = pt.transformers.screen_head(model), []
    scores = screened.scores
    screened.scores = lambda *a: shapes.append((s := scores(*a)).isfinite().sum()) or s
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options, result in zip(calls, expected, strict=True):
            assert torch.equal(written(model, ids, **options), result), options
    if choice.kernels():
        assert 0 < torch.stack(shapes).float().mean() < 3 * WORDS / 10
    logits = model(ids).logits
    torch.testing.assert_close(logits, model.model(ids)[0] @ model.lm_head.weight.T)
    screened.remove()
    screened.remove()
    assert torch.equal(written(model, ids, **DRAWN), expected[1])
    assert not {"generate", "_get_logits_processor", "screened_head"} & vars(model).keys()
    assert "forward" not in vars(model.lm_head)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"do_sample": True, "top_p": 0.9}, "TopPLogitsWarper"),
        ({"num_beams": 2}, "beam_search"),
        ({"do_sample": True, "typical_p": 0.9, "top_k": 0}, "TypicalLogitsWarper"),
        (GREEDY | {"output_scores": True, "return_dict_in_generate": True}, "output_scores"),
        (GREEDY | {"prompt_lookup_num_tokens": 2}, "assisted_generation"),
    ],
)
def test_calls_that_need_all_scores_say_so(options: dict[str, Any], why: str) -> None:
    model, ids = llama(), torch.randint(6, WORDS, (1, 7))
    expected = written(model, ids, **options)
    screened = pt.transformers.screen_head(model)
    with pytest.warns(UserWarning, match=f"screen_head: {why} needs all scores"):
        result = written(model, ids, **options)
    if "output_scores" in options:
        for mine, other in zip(result.scores, expected.scores, strict=True):
            assert torch.equal(mine, other)
        result, expected = result.sequences, expected.sequences
    assert torch.equal(result, expected)
    screened.remove()


def test_an_assistant_needs_all_scores() -> None:
    model, ids = llama(), torch.randint(6, WORDS, (1, 7))
    expected = written(model, ids, **GREEDY)
    pt.transformers.screen_head(model)
    with pytest.warns(UserWarning, match="screen_head: assistant_model needs all scores"):
        assert torch.equal(written(model, ids, assistant_model=llama(), **GREEDY), expected)


def test_rows_that_change_are_copied_anew() -> None:
    model, ids = llama(), torch.randint(6, WORDS, (2, 7))
    pt.transformers.screen_head(model)
    written(model, ids, **GREEDY)
    with torch.no_grad():
        model.lm_head.weight.copy_(model.lm_head.weight.flip(0))
    result = written(model, ids, **GREEDY)
    model.screened_head.remove()
    assert torch.equal(result, written(model, ids, **GREEDY))


def test_a_half_head_chooses_by_products_in_float32() -> None:
    model, ids = llama().bfloat16(), torch.randint(6, WORDS, (2, 7))
    with torch.no_grad():
        hidden = model.model(ids)[0][:, -1].float()
    pt.transformers.screen_head(model)
    expected = (hidden @ model.lm_head.weight.float().T).argmax(-1)
    assert torch.equal(written(model, ids, **GREEDY)[:, 7], expected)


def test_logits_that_are_changed_are_an_error() -> None:
    model, ids = llama(), torch.randint(6, WORDS, (1, 7))
    forward = model.forward

    def capped(*args: Any, **options: Any) -> Any:
        output = forward(*args, **options)
        output.logits = 5 * torch.tanh(output.logits / 5)
        return output

    model.forward = capped
    pt.transformers.screen_head(model)
    with pytest.raises(ValueError, match="changes its logits behind the output layer"):
        written(model, ids, **GREEDY)
    with pytest.raises(TypeError, match="with a linear output layer"):
        pt.transformers.screen_head(torch.nn.Linear(3, 3))


@pytest.mark.parametrize("keep", ["top_k=3", "min_p=0.3", "top_p=0.2"])
def test_lists_of_outputs_are_the_same(keep: str) -> None:
    from pyentmax.seq2seq import list_outputs

    model, ids = llama(), [[7, 9, 11]]
    options: dict[str, Any] = {"keep": keep, "max_length": 3, "budget": 60, "progress": False}
    [expected] = list_outputs(model, ids, **options)
    screened, calls = pt.transformers.screen_head(model), []
    scores = screened.scores
    screened.scores = lambda *a: calls.append(1) or scores(*a)
    [result] = list_outputs(model, ids, **options)
    assert bool(calls) == (keep != "top_p=0.2")
    assert [h.tokens for h in result.hypotheses] == [h.tokens for h in expected.hypotheses]
    np.testing.assert_allclose(
        [h.log_prob for h in result.hypotheses],
        [h.log_prob for h in expected.hypotheses],
        rtol=0,
        atol=1e-5,
    )
    assert result.complete == expected.complete


def test_array_and_tensor_rows_agree() -> None:
    x, rows, _ = head(torch.float32)
    words, scores, _ = pt.linear_top_k(x, pt.ScreenedRows(rows), 7)
    expected = pe.linear_top_k(x.numpy(), pe.ScreenedRows(rows.numpy()), 7)
    np.testing.assert_array_equal(words, expected[0])
    np.testing.assert_array_equal(scores, expected[1])
