"""The smallest model and source of batches, and a source that interrupts the training."""

import signal

import numpy as np

from pyentmax.seq2seq.autograd import take_rows
from pyentmax.seq2seq.nn.mapping_choice import choose_mapping


class Bigrams:
    """A language model that looks one token back: scores are a row of a table."""

    def __init__(self):
        self.params = {"scores": np.zeros((4, 4), np.float32)}

    def loss(self, params, batch, rng=None):
        return choose_mapping("1.5").loss(take_rows(params["scores"], batch[:-1]), batch[1:])


class Windows:
    """Windows of a text, drawn one by one: batches of another kind, which cannot be listed."""

    unit = "tokens"

    def epoch(self, rng):
        for start in (rng.integers(40) for _ in range(6)):
            yield np.arange(start, start + 9) % 4

    def count(self, batch):
        return len(batch) - 1


class Interrupting:
    """Other batches, and a signal, of Ctrl-C, while batch number ``stop`` is in use."""

    def __init__(self, batches, stop, signum=signal.SIGINT):
        self.batches, self.stop, self.counted, self.unit = batches, stop, 0, batches.unit
        self.signum = signum

    def epoch(self, rng):
        return self.batches.epoch(rng)

    def count(self, batch):
        self.counted += 1
        if self.counted == self.stop:
            signal.raise_signal(self.signum)
        return self.batches.count(batch)
