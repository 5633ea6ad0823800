"""Doctests: what needs PyTorch is left alone without it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["own/torch_language_model.py", "peters2019/gpu.py"]
