"""Protocols of training, for a model and for the source of its batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from pyentmax.seq2seq.autograd import Tensor

Batch = TypeVar("Batch")
Accepted = TypeVar("Accepted", contravariant=True)


class Trainable(Protocol[Accepted]):
    """A model as the training loop sees it.

    It may also have ``diagnostics()``, for the history: a few numbers worth following, such as the
    α of its heads, by name, always the same names and as JSON can hold them.

    Attributes
    ----------
    params : dict of arrays
        They are updated in place.
    """

    params: dict[str, Any]

    def loss(
        self, params: dict[str, Any], batch: Accepted, rng: np.random.Generator | None = None
    ) -> Tensor:
        """The loss of a batch, a scalar.

        Parameters
        ----------
        params : dict of Tensors
            Those of the model, to be differentiated.
        batch : object
            From the source of the batches; the model moves it to where it computes.
        rng : numpy.random.Generator, optional
            Switches dropout on; every random number comes from it.
        """


class BatchSource(Protocol[Batch]):
    """Batches for one epoch after another.

    Attributes
    ----------
    unit : str
        What `count` counts, such as "examples" or "tokens".
    """

    @property
    def unit(self) -> str: ...

    def epoch(self, rng: np.random.Generator) -> Iterable[Batch]:
        """The batches of one epoch; they depend on the generator's state only.

        A run that is resumed within an epoch draws the same epoch again, from the same state, and
        skips the batches that are done. So a source may draw as it goes, but must not remember
        anything from one epoch to the next.
        """

    def count(self, batch: Batch) -> int:
        """How many units a batch holds: for the displayed speed, and as the weight of its mean
        loss among those of the other batches of an update."""
