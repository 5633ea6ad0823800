"""Sequence-to-sequence models, and the protocol that decoders expect of one."""
