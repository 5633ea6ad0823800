"""Calls of kernels: threads, memory, warnings, which instruction set runs, what has no loop."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from kernel_operands import BASELINE, _cpu
from stages import slow


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )


def test_many_python_threads_at_once():
    z = np.random.default_rng(11).standard_normal((8, 50, 600))
    mask = np.broadcast_to(True, (50, 600))
    expected = [_cpu.entmax15(part, mask) for part in z]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            found = pool.map(lambda part: _cpu.entmax15(part, mask), z)
            for got, want in zip(found, expected, strict=True):
                np.testing.assert_array_equal(got, want)


def test_other_threads_run_while_the_kernel_does():
    """With the GIL held for the whole call, the counting thread could not get a single turn.

    The switch interval is set so long that the interpreter never takes the GIL away by itself.
    """
    z = np.random.default_rng(12).standard_normal((4_000, 1_000))
    started, stop, turns = threading.Event(), threading.Event(), [0]

    def count():
        started.set()
        while not stop.wait(1e-4):
            turns[0] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    thread = threading.Thread(target=count)
    try:
        thread.start()
        started.wait()
        mask = np.broadcast_to(True, z.shape)
        during = 0
        for _ in range(500):  # on a busy machine a call of 2 ms may end before the thread wakes
            before = turns[0]
            _cpu.entmax15(z, mask)
            during += turns[0] - before
            if during:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert during > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory in the manner of Linux")
@pytest.mark.skipif("sanitize" in _cpu.BUILD_INFO, reason="a sanitizer needs memory without limit")
def test_no_memory_left_is_a_memory_error():
    done = run("""
import resource
import numpy as np
from pyentmax import _cpu
z, p = np.zeros((2, 10_000_000), np.float32)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 2**24, held + 2**24))
try:
    _cpu.entmax15(z, np.broadcast_to(True, z.shape), out=p)
except MemoryError:
    print("MemoryError")
""")
    assert done.stdout.strip() == "MemoryError", done.stdout + done.stderr


def test_objects_and_complex_numbers_have_no_loop():
    for z in (np.array([1j, 0]), np.array([1, None], object)):
        with pytest.raises(TypeError, match="entmax15"):
            _cpu.entmax15(z, True)


NO_ALPHA = [0.99, 0, -1, np.nan, -np.inf]


@pytest.mark.parametrize("n", [4, *slow(300)])
def test_parameters_that_no_caller_passes_give_nan(n):
    z = np.zeros((3, n))
    p, y, one = np.full((3, n), 1 / n), np.zeros(3, int), np.ones(3)
    mask = np.ones((3, n), bool)
    for alpha in NO_ALPHA:
        mixed = np.array([1.2, alpha, 1.2])
        found = _cpu.entmax(z, mask, mixed)
        assert np.isnan(found[1]).all()
        np.testing.assert_allclose(found[[0, 2]], 1 / n, rtol=1e-15)
        results = (
            _cpu.entmax_jvp(p, p, mixed),
            _cpu.entmax_grad_alpha(p, mixed),
            *_cpu.entmax_vjps(p, p, mixed),
            _cpu.entmax_vjp_alpha(p, p, mixed),
        )
        for result in results:
            assert np.isnan(result[1]).all()
            assert not np.isnan(result[[0, 2]]).any()
    assert np.isnan(_cpu.topk_sparsemax(z, mask, 0)).all()
    loss, counts, grad = _cpu.topk_sparsemax_loss_and_grad(z, mask, y, one, 0)
    assert counts.all()
    assert np.isnan(loss).all()
    assert np.isnan(grad).all()


# --- instruction sets -----------------------------------------------------------------------------


def test_the_build_is_described():
    assert _cpu.INSTRUCTION_SET
    assert "-march" not in _cpu.BUILD_INFO
    assert _cpu.entmax15.signature == _cpu.entmax15_jvp.signature == "(n),(n)->(n)"
    assert _cpu.entmax15.types == ["f?->f", "d?->d"]
    for kernels in _cpu.BUILDS.values():
        assert kernels.keys() == _cpu.BUILDS[BASELINE].keys()
        for name, kernel in kernels.items():
            assert kernel.__name__ == name


@pytest.mark.slow  # as `make test-slow` builds the kernels, and a wheel
@pytest.mark.skipif(platform.machine() != "x86_64", reason="one build elsewhere")
def test_the_baseline_of_x86_64_asks_nothing_of_the_machine():
    assert BASELINE == "x86-64 baseline (SSE2)"


IMPORT = (
    "from pyentmax import _cpu; print(_cpu.INSTRUCTION_SET);"
    "print(_cpu.entmax15 is _cpu.BUILDS[_cpu.INSTRUCTION_SET]['entmax15'])"
)


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "place"), [("", 0), ("baseline", -1)])
def test_the_variable_chooses_what_runs(wanted, place):
    done = run(IMPORT, PYENTMAX_INSTRUCTION_SET=wanted)
    assert done.stdout.splitlines() == [list(_cpu.BUILDS)[place], "True"], done.stderr


@pytest.mark.slow
def test_an_unknown_instruction_set_is_an_error():
    done = run(IMPORT, PYENTMAX_INSTRUCTION_SET="avx9")
    assert "must be empty or a word of" in done.stderr
