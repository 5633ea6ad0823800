"""Threads of BLAS: limited within a block, given back after it, and said so."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from pyentmax.cli import main
from pyentmax.engine.system import blas
from pyentmax.engine.system.blas import describe_blas, limit_blas
from pyentmax.seq2seq.data import BucketedPairs
from pyentmax.seq2seq.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from pyentmax.seq2seq.training import RunOptions, TrainingConfig, Validation, train

threadpoolctl = pytest.importorskip("threadpoolctl")


def threads() -> int:
    """What threadpoolctl says, asked anew."""
    pools = threadpoolctl.ThreadpoolController().select(user_api="blas").info()
    return max(pool["num_threads"] for pool in pools)


@pytest.fixture(autouse=True)
def three_threads():
    """Starts each test with a BLAS that has three, whatever the environment asks for."""
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        if threads() != 3:
            pytest.skip("this BLAS cannot have three threads")
        yield
        assert threads() == 3, "the limit outlived its block"


def test_one_thread_unless_told_otherwise():
    with limit_blas():
        assert threads() == 1
        with limit_blas(2):
            assert threads() == 2
            with limit_blas():  # the limit in force stays
                assert threads() == 2
        assert threads() == 1
    with limit_blas(2):
        assert describe_blas("N") == "BLAS runs 2 threads; N changes that"


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_error_in_the_block_ends_the_limit(error):
    with pytest.raises(error), limit_blas():
        raise error
    assert threads() == 3
    assert not blas._limits


def test_zero_threads_are_refused():
    with pytest.raises(ValueError, match="blas_threads: expected at least 1, got 0"):
        with limit_blas(0):
            pass


def test_only_the_main_thread_sets_limits():
    def work():
        with limit_blas(1):
            seen.append(threads())

    seen: list[int] = []
    other = threading.Thread(target=work)
    other.start()
    other.join()
    assert seen == [3]


@pytest.mark.parametrize(("asked", "given"), [(None, 1), (2, 2)])
def test_training_is_limited(asked, given, capsys):
    config = RNNSeq2SeqConfig(5, 5, hidden=4)
    model = RNNSeq2Seq.initialize(config, np.random.default_rng(0), bos=1, eos=2)
    pairs = BucketedPairs([(np.array([4]), np.array([4]))], 1)
    seen = []

    def validate(model):
        seen.append(threads())
        return Validation(1.0, 1.0)

    train(model, pairs, TrainingConfig(updates=2), validate, RunOptions(blas_threads=asked))
    assert seen == [given] * 2
    assert capsys.readouterr().err.startswith(f"BLAS runs {given} thread")


def test_commands_limit_it_and_say_so(tmp_path, capsys):
    words = tmp_path / "english"
    words.write_text("walk\twalked\tV;PST\n", encoding="utf-8")
    small = ["--hidden", "4", "--updates", "1", "--quiet", "--out", str(tmp_path / "run")]
    arguments = ["train", "seq2seq", "--train", str(words), "--dev", str(words), *small]
    assert main(arguments) == 0
    assert "\nBLAS runs 1 thread; --blas-threads N changes that\n" in capsys.readouterr().err
    assert main([*arguments, "--resume", "--blas-threads", "2"]) == 0
    assert "\nBLAS runs 2 threads;" in capsys.readouterr().err


def test_missing_threadpoolctl_says_what_to_install():
    code = (
        "import sys; sys.modules['threadpoolctl'] = None\n"
        "from pyentmax.engine.system.blas import describe_blas, limit_blas\n"
        "with limit_blas(): print(describe_blas())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'pyentmax[models]' brings threadpoolctl" in done.stdout
