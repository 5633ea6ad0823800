"""The error that bad data raises."""

from __future__ import annotations


class DataError(ValueError):
    """Data that cannot be used as it is; the message says where, what was found and what to do."""
