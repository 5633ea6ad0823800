"""What goes wrong with data: a file, a word or a table that is not what it should be."""

from __future__ import annotations


class DataError(ValueError):
    """Data that cannot be used as it stands; the message says where, what came and what to do."""
