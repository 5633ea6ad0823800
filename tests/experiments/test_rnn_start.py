"""The starts of recurrent networks: the deviation of embeddings, and PyTorch's bounds."""

import numpy as np

from experiments.rnn_start import StartedConfig, StartedRNN


def test_embeddings_have_the_requested_deviation():
    sizes = {"source_size": 200, "target_size": 100, "hidden": 64}
    for std, expected in ((None, 1 / 8), (1.0, 1), (0.3, 0.3)):
        config = StartedConfig(**sizes, embedding_std=std)
        params = StartedRNN.initialize(config, np.random.default_rng(0), bos=1, eos=2).params
        for side in ("source", "target"):
            deviation = params[f"{side}_embedding.weight"].std()
            np.testing.assert_allclose(deviation, expected, rtol=0.05)  # of 6,400 entries and more


def test_uniform_start_has_pytorchs_bounds():
    sizes = {"source_size": 20, "target_size": 30, "hidden": 64, "layers": 2}
    drawn, glorot = (
        StartedRNN.initialize(
            StartedConfig(**sizes, attention="learned", score="additive", start=start),
            np.random.default_rng(0),
            bos=1,
            eos=2,
        ).params
        for start in ("uniform", None)
    )
    inputs = {"decoder.0.weight": 64, "decoder.0.bias": 64, "decoder.1.bias": 64, "combine": 128}
    inputs |= {"encoder": 32, "decoder": 128, "attention": 64, "output": 64}
    for name, x in drawn.items():
        if name.endswith("_embedding.weight") or name == "attention.alpha_logit":
            np.testing.assert_array_equal(x, glorot[name])
            continue
        n = inputs.get(name) or inputs[name.partition(".")[0]]
        # The largest of 30 entries and more comes near the bound, and none goes beyond it.
        assert 0.8 * n**-0.5 < abs(x).max() <= n**-0.5, name
