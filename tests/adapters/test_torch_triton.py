"""The Triton kernels of attention, compiled for GPUs without one.

What they compute is tested by `interpreted_triton.py`.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install pyentmax[torch]")
triton = pytest.importorskip(
    "triton", reason="Triton is not installed: it comes with PyTorch for CUDA"
)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.backends.nvidia import compiler as nvidia  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from pyentmax.torch import triton_attention  # noqa: E402

PTXAS = Path(nvidia.__file__).parent / "bin" / "ptxas"
KERNELS = ("_forward", "_backward_queries", "_backward_keys")
TYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def resources(
    name: str, capability: int, dtype: Any, size: int, kind: int, folder: Path, bare: bool = True
) -> tuple[int, int]:
    """Registers of a thread, and bytes that spill from them; bare: without what may be None."""
    kernel = getattr(triton_attention, name)
    x = torch.empty(1, 2, 1, size, dtype=dtype)
    constants = triton_attention._constants(x, x, x, kind, causal=True)
    options = {key: constants.pop(key) for key in ("num_warps", "num_stages")}
    constants |= {"WITH_BETA": not kind, "TOLERANCE": 1e-3}
    if bare:
        constants |= dict.fromkeys(("SINK", "SLOPES", "MASK", "cap"))
    signature, fixed, aligned = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        argument = parameter.name
        if parameter.is_constexpr or argument in constants:
            signature[argument], fixed[(place,)] = "constexpr", constants[argument]
        elif argument in ("Q", "K", "V", "G", "OUT", "DQ", "DK", "DV"):
            signature[argument] = "*" + TYPES[dtype]
        elif argument == "MASK":
            signature[argument] = "*u8"
        elif argument.isupper():
            signature[argument] = "*i32" if argument == "TABLE" else "*fp32"
        else:
            signature[argument] = "fp32" if argument in ("scale", "cap") else "i32"
        if signature[argument].startswith("*") or argument in ("qt", "kt", "vt"):
            aligned[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, fixed, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assembly = folder / "kernel.ptx"
    assembly.write_text(compiled.asm["ptx"])
    target = f"sm_{capability}" + ("a" if capability >= 90 else "")
    command = [PTXAS, "-v", f"--gpu-name={target}", assembly, "-o", folder / "kernel.cubin"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spills = (
        re.search(r"Used (\d+) registers", said),
        re.search(r"(\d+) bytes spill stores", said),
    )
    assert registers is not None
    assert spills is not None
    return int(registers[1]), int(spills[1])


SLOW, DEEP = pytest.mark.slow, pytest.mark.deep
GRID = itertools.product((80, 90), TYPES, (64, 128, 256), (2,))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    ("capability", "dtype", "size", "kind"),
    [
        (90, torch.bfloat16, 64, 2),
        pytest.param(90, torch.float16, 64, 0, marks=SLOW),
        pytest.param(90, torch.float16, 128, 1, marks=SLOW),
        pytest.param(80, torch.float16, 128, 0, marks=SLOW),
        pytest.param(90, torch.float32, 128, 2, marks=SLOW),
        *(pytest.param(*case, marks=DEEP) for case in GRID),
    ],
)
def test_kernels_stay_in_registers(
    name: str, capability: int, dtype: Any, size: int, kind: int, tmp_path: Path
) -> None:
    registers, spilled = resources(name, capability, dtype, size, kind, tmp_path)
    power = kind or "any"
    print(f"{name} sm_{capability} {dtype} d={size} 1/β={power}: {registers}, {spilled} B spilled")
    assert spilled <= (1536 if dtype == torch.float32 else 256)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_all_options_and_tiles_that_are_not_square(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(triton_attention, "TILES", {"ROWS": 32, "KEYS": 64})
    assert resources(name, 90, torch.float16, 64, 0, tmp_path, bare=False)[1] <= 256
