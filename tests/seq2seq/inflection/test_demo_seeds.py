"""What the demonstration promises, over five seeds: minutes."""

import numpy as np
import pytest

from pyentmax.seq2seq.inflection.demo import LEMMA, TAGS, train_demo
from pyentmax.seq2seq.training import RunOptions

pytestmark = pytest.mark.deep


def test_drawn_and_drawed_in_four_of_five_seeds():
    both = 0
    for seed in range(5):
        inflector, history = train_demo(seed, RunOptions(progress=False))
        assert history.best_accuracy > 0.88
        result = inflector.inflect(LEMMA, TAGS)
        forms = {inflector.form(h.tokens): round(h.probability, 4) for h in result.hypotheses}
        print(f"seed {seed}: dev {history.best_accuracy:.3f}, exact {result.exact}, {forms}")
        if result.exact:
            np.testing.assert_allclose(result.mass, 1, rtol=0, atol=1e-4)
        both += {"drawn", "drawed"} <= forms.keys()
    assert both >= 4
