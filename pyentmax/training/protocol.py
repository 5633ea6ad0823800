"""What training asks of a model, and of whatever gives the batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from pyentmax.autograd import Tensor

__all__ = ["BatchSource", "Trainable"]

Batch = TypeVar("Batch")
Accepted = TypeVar("Accepted", contravariant=True)


class Trainable(Protocol[Accepted]):
    """A model as the training loop sees it.

    Attributes
    ----------
    params : dict of arrays
        All on the host, or all on the GPU. They are updated in place.
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
            As the source of the batches gives it; the model moves it to where it computes.
        rng : numpy.random.Generator, optional
            Switches dropout on, and is all the randomness that there is.
        """


class BatchSource(Protocol[Batch]):
    """Batches for one epoch after another.

    Attributes
    ----------
    unit : str
        What `count` counts: "examples", "tokens".
    identity : dict
        What makes these batches what they are, as JSON can hold it: a run is resumed only where
        it is the same.
    """

    @property
    def unit(self) -> str: ...
    @property
    def identity(self) -> dict[str, Any]: ...

    def epoch(self, rng: np.random.Generator) -> Iterable[Batch]:
        """The batches of one epoch, a function of the generator alone.

        A run that goes on within an epoch draws the same epoch again, from the generator as it
        stood before, and leaves out the batches that are done.
        """

    def count(self, batch: Batch) -> int:
        """How many units a batch holds, for the figures that the user sees."""
