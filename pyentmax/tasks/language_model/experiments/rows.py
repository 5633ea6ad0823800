"""The rows of the table: models that differ in their mappings, and in how sparse ones start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyentmax.data import DataError
from pyentmax.training import TrainingConfig

MODEL: dict[str, Any] = {
    "width": 128,
    "layers": 4,
    "heads": 4,
    "inner": 512,
    "dropout": 0.1,
    "output": "1",
    "norm": "pre",
}
TRAINING: dict[str, Any] = {
    "updates": 2000,
    "rate": 3e-3,
    "schedule": "inverse_sqrt",
    "warmup": 200,
    "clip": 1.0,
    "betas": (0.9, 0.98),
    "validate_every": 200,
}
CONTEXT, BATCH = 256, 4
KS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Row:
    """One model of the table.

    Attributes
    ----------
    what : str
        The model in a few words.
    model, training : dict
        Settings in which it differs from `MODEL` and `TRAINING`.
    """

    what: str
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def updates(self) -> int:
        """How long it learns."""
        return int({**TRAINING, **self.training}["updates"])

    def config(self) -> dict[str, Any]:
        """The fields of the model's configuration but for the size."""
        return {**MODEL, **self.model}

    def settings(self, seed: int, updates: int | None = None) -> TrainingConfig:
        """How it is trained."""
        given = {} if updates is None else {"updates": updates}
        return TrainingConfig(**{**TRAINING, **self.training, "seed": seed, **given})


def _row(what: str, attention: str, training: Any = None, **model: Any) -> Row:
    return Row(what, {"attention": attention, **model}, training or {})


_SLOW = {"rate_factors": {"query": 0.1, "key": 0.1}}
_LATE = {"first_attention": "1", "first_updates": 1000}
_RELATIVE = {"positions": "relative"}

ROWS: dict[str, Row] = {
    "softmax": _row("softmax", "1"),
    "1.5": _row("1.5-entmax from the start", "1.5"),
    "1.5-slow": _row("1.5, a tenth of the rate for queries and keys", "1.5", _SLOW),
    "1.5-late": _row("softmax for 1,000 updates, then 1.5", "1.5", **_LATE),
    "learned": _row("α per head learned from the start", "learned"),
    "learned-slow": _row("α per head learned, a tenth of the rate", "learned", _SLOW),
    "learned-late": _row("softmax for 1,000 updates, then α learned", "learned", **_LATE),
    **{f"top{k}": _row(f"the {k} largest of softmax", f"topk_softmax:{k}") for k in KS},
    "top8-late": _row("softmax for 1,000 updates, then top-8", "topk_softmax:8", **_LATE),
    "softmax-scaled": _row("softmax, scores scaled by length", "1", length_scale=True),
    "1.5-late-scaled": _row("1.5-late, scores scaled by length", "1.5", **_LATE, length_scale=True),
    "relative": _row("softmax, relative positions", "1", **_RELATIVE),
    "relative-1.5-late": _row("1.5-late, relative positions", "1.5", **_LATE, **_RELATIVE),
    "relative-scaled": _row(
        "softmax, relative positions, scaled by length", "1", **_RELATIVE, length_scale=True
    ),
    "relative-1.5-late-scaled": _row(
        "1.5-late, relative positions, scaled by length",
        "1.5",
        **_LATE,
        **_RELATIVE,
        length_scale=True,
    ),
    "memory": _row("softmax, relative positions, memory", "1", **_RELATIVE, memory=256),
    "never": _row("softmax heads, output and loss of 1.5-entmax", "1", output="1.5"),
}
"""Name → row."""


def row(name: str) -> Row:
    """The row of that name."""
    if name not in ROWS:
        raise DataError(f"row: expected one of {', '.join(ROWS)}; got {name!r}")
    return ROWS[name]
