"""Sequence-to-sequence models, and what decoders ask of one."""
