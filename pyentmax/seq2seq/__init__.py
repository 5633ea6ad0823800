"""Sequence-to-sequence models in plain NumPy, from the autograd tape to the commands.

`autograd` is the tape, `nn` and `models` what it trains, `training` the loop, `decoding` the
searches, `data` and `inflection` what the commands read and save, `analysis` and `plotting` what
a trained model shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyentmax.seq2seq.decoding.listing import list_outputs as list_outputs


def __getattr__(name: str) -> Any:
    if name == "list_outputs":  # the searches are imported when it is asked for
        from pyentmax.seq2seq.decoding.listing import list_outputs

        return list_outputs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
