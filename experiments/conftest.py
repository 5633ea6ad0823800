"""Doctests: what needs PyTorch is left alone without it."""

from importlib.util import find_spec

NEED_TORCH = [
    "own/torch_decoder.py",
    "own/torch_language_model.py",
    "own/torch_sides.py",
    "peters2019/gpu.py",
    "vasylenko2025/decoder.py",
]
collect_ignore = [] if find_spec("torch") else NEED_TORCH
