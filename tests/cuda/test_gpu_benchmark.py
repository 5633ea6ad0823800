"""benchmarks/gpu.py from end to end, with the emulation in the GPU's place: no time means anything.

So that the first run on a GPU does not end in a slip of the pen.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emulated_cupy
import fake_cupy
import numpy as np
import pytest
from emulation import unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import gpu  # noqa: E402


class Event:
    """A CUDA event, on the host's clock."""

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None: ...


class Generator:
    def __init__(self, seed: int) -> None:
        self._numpys = np.random.default_rng(seed)

    def standard_normal(self, size: Any, dtype: Any) -> Any:
        return fake_cupy.asarray(self._numpys.standard_normal(size, dtype=dtype))


def copyto(target: Any, source: Any) -> None:
    target[...] = source


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[emulated_cupy.Emulation]:
    """What the benchmark needs of CuPy beyond what the library does."""
    with emulated_cupy.installed() as emulation:
        cupy: Any = sys.modules["cupy"]
        cupy.__version__ = "0"
        cupy.copyto = copyto
        cupy.random = types.SimpleNamespace(default_rng=Generator)
        cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: None)
        cupy.cuda.Event = Event
        cupy.cuda.get_elapsed_time = lambda start, end: 1000 * (end.at - start.at)
        cupy.cuda.runtime = types.SimpleNamespace(
            getDeviceProperties=lambda number: {"name": b"an emulation"},
            driverGetVersion=lambda: 1,
            runtimeGetVersion=lambda: 2,
        )
        for name, value in {
            "LENGTHS": [40],
            "TOTALS": [1, 2 << 20],
            "AHEAD_BYTES": 100,
            "DRAWN": 60,
            "CHECKED_BYTES": 1,
            "PEERS_BYTES": 1,
        }.items():
            monkeypatch.setattr(gpu, name, value)
        monkeypatch.setattr(gpu, "rows_of", lambda case: 2)
        yield emulation


@pytest.mark.slow
def test_a_run_without_pytorch(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    gpu.main(["--folder", str(tmp_path), "--rounds", "2"])
    assert "PyTorch is not installed" in capsys.readouterr().out
    page = (tmp_path / "gpu.md").read_text()
    assert "an emulation; driver 1; CUDA 2; CuPy 0; no torch with a GPU" in page
    assert page.count("## Forward") == page.count("## Jacobian") == 4
    assert page.count("## Largest error") == 2
    assert "## Peers" not in page
    assert "error | sparsemax | float32 ≤ 1e-06 | 1 of 1" in page
    assert "peers | entmax 2.0 | times ≥ 20 | – | – |" in page


def test_a_table_of_another_machine_is_begun_anew(device: Any, tmp_path: Path) -> None:
    case = gpu.Case("forward", 40, 0, "float32")
    table = tmp_path / "gpu.csv"
    assert gpu.read(table, "this") == {}
    gpu.append(table, "this", case, {"copy": 1.0, "softmax": 1.25})
    assert gpu.read(table, "this") == {case: {"copy": 1.0, "softmax": 1.25}}
    assert gpu.read(table, "that") == {}
    assert gpu.read(table, "this") == {}


def test_targets_are_judged_by_the_side_they_have(device: Any) -> None:
    good = gpu.Case("forward", 64, 1, "float32")
    bad = gpu.Case("forward", 128, 1, "float32")
    values = {"copy": 0.8, "sparsemax": 0.9, "torch": 1.0}
    measured = {good: values, bad: {**values, "sparsemax": 1.1}}
    judged = {(case, key): met for case, key, met, _ in gpu.judged(measured)}
    assert judged == {
        (good, ("sparsemax", "share")): True,
        (good, ("sparsemax", "of torch")): True,
        (bad, ("sparsemax", "share")): False,
        (bad, ("sparsemax", "of torch")): False,
    }
    page = gpu.written("stamp", measured)
    assert "2 of 4 numbers meet their target; ✗ marks those that do not." in page
    assert "| forward | sparsemax | share ≥ 0.8 | 1 of 2 | 0.727 at 128 (1 MB, float32) |" in page
    assert "| 64 | 0 | 89%, 0.90× |" in page
    assert "| 128 | 0 | 73% ✗, 1.10× ✗ |" in page


@pytest.mark.slow
def test_the_benchmark_of_attention_runs(
    device: emulated_cupy.Emulation, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    import gpu_attention

    monkeypatch.setattr(emulated_cupy._Device, "synchronize", lambda self: None, raising=False)
    monkeypatch.setattr(gpu_attention, "HEADS", 2)
    monkeypatch.setattr(gpu_attention, "QUICK", [32])
    gpu_attention.main(["--quick", "--rounds", "1"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 32 |")]
    assert len(rows) == 8
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == len(gpu_attention.COLUMNS + gpu_attention.RUNS)
        assert float(cells[5]) < (1e-2 if cells[3] == "float16" else 1e-5)
        assert float(cells[6]) > 0
