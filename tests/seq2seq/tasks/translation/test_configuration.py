"""Configurations of translation: what they may say, and what is refused."""

import pytest

from pyentmax.seq2seq.data import DataError
from pyentmax.seq2seq.tasks.translation import read_experiment
from pyentmax.seq2seq.tasks.translation.translator import ARCHITECTURES
from pyentmax.seq2seq.training import TrainingConfig

SMALL = """
[data]
train = ["train.de", "train.en"]
dev = "dev.tsv"
tokens = 300

[model]
width = 8
layers = 1

[training]
updates = 4
betas = [0.9, 0.98]
rate_factors = { query = 0.1 }
"""


@pytest.fixture
def read(corpus):
    """Reads the configuration with some texts replaced, next to the files that it names."""

    def reader(old="", new=""):
        path = corpus / "small.toml"
        path.write_text(SMALL.replace(old, new), "utf-8")
        return read_experiment(path, "transformer")

    return reader


def test_files_stand_next_to_the_configuration(read):
    experiment = read()
    train, dev = experiment.pairs()
    assert (len(train), len(dev)) == (100, 20)
    assert experiment.batches() == {"tokens": 300}
    training = TrainingConfig(**experiment.training)
    assert training.betas == (0.9, 0.98)
    assert training.rate_factors == {"query": 0.1}


def test_alpha_may_be_a_number_and_batches_count_pairs(read):
    model = read("layers = 1", "attention = 1.25\noutput = 2").model
    assert (model["attention"], model["output"]) == ("1.25", "2")
    assert read("tokens = 300", "batch_size = 3").batches() == {"batch_size": 3}


def test_long_pairs_are_left_out_of_training(read):
    train, dev = read("tokens = 300", "longest = 6").pairs()
    assert 0 < len(train) < 100
    assert max(len(side.split()) for pair in train for side in pair) == 6
    assert len(dev) == 20
    with pytest.raises(DataError, match=r"\[data\] longest: expected at least \d+, the words of"):
        read("tokens = 300", "longest = 1").pairs()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[data]", "[data", "expected TOML"),
        ("[data]", "[date]", "expected the tables data, model, training; got 'date'"),
        ("tokens = 300", "token = 300", r"\[data\]: expected train, .*; got 'token'"),
        ("tokens = 300", "tokens = 0", r"\[data\] tokens: expected a number above 0, got 0"),
        ("tokens = 300", "tokens = 9\nbatch_size = 3", "expected tokens or batch_size, got both"),
        (
            "tokens = 300",
            "subwords = 0.5",
            r"\[data\] subwords: expected int \| str \| None, got 0.5",
        ),
        *(
            ("tokens = 300", entries, "normalization: expected one of identity, .* got 'nfd'")
            for entries in ('subwords = 90\nnormalization = "nfd"', 'normalization = "nfd"')
        ),
        (
            "tokens = 300",
            'subwords = 90\nalgorithm = "BPE"',
            "algorithm: expected one of unigram, bpe, next to a number of subwords, got 'BPE'",
        ),
        (
            "tokens = 300",
            'subwords = "joint.model"\nseparate = true',
            "separate: expected true or false, next to a number of subwords, got True",
        ),
        ('dev = "dev.tsv"', "", r"\[data\] .*missing.*'dev'"),
        ('dev = "dev.tsv"', 'dev = ["a"]', r"\[data\] dev: expected two files"),
        ("width = 8", "hidden = 8", r"\[model\]: expected width, .*; got 'hidden'"),
        ("width = 8", "source_size = 8", r"\[model\]: expected width, .*; got 'source_size'"),
        ("width = 8", "width = 8.5", r"\[model\] width: expected int, got 8.5"),
        ("width = 8", "attention_bias = 1", "attention_bias: expected bool, got 1"),
        ("updates = 4", "epochs = 4", r"\[training\]: expected .*updates, .*; got 'epochs'"),
    ],
)
def test_wrong_entry_is_named(read, old, new, message):
    with pytest.raises(DataError, match=message):
        read(old, new)


@pytest.mark.parametrize(
    "name",
    ["toy-rnn", "toy-transformer", "peters2019-rnn", "correia2019-transformer"]
    + ["explicit2019-transformer", "multi30k-rnn", "multi30k-transformer"],
)
def test_bundled_configuration_can_be_trained_with(name):
    architecture = name.rpartition("-")[2]
    experiment = read_experiment(name, architecture)
    ARCHITECTURES[architecture][1](source_size=9, target_size=9, **experiment.model)
    TrainingConfig(**experiment.training)


def test_bundled_corpus_holds_out_its_last_pairs():
    train, dev = read_experiment("toy-rnn", "rnn").pairs()
    assert (len(train), len(dev)) == (3000, 200)
    assert not {p.source for p in train} & {p.source for p in dev}


def test_unknown_configuration_lists_the_bundled_ones():
    with pytest.raises(
        DataError, match="expected a file or one of .*toy-transformer.*; got nowhere"
    ):
        read_experiment("nowhere", "rnn")
