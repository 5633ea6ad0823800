"""Language models of the experiments: relative positions, and a memory of the text before."""

from experiments.language_model.relative import (
    MemorySegments,
    RelativeConfig,
    RelativeLanguageModel,
)

__all__ = ["MemorySegments", "RelativeConfig", "RelativeLanguageModel"]
