"""Sequence-to-sequence models, their protocol for decoders, and adapters of other models."""

from pyentmax.seq2seq.models.hugging_face import from_transformers as from_transformers
from pyentmax.seq2seq.models.steps import from_steps as from_steps
