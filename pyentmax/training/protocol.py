"""What training requires of a model, and of the source of its batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from pyentmax.autograd import Tensor

Batch = TypeVar("Batch")
Accepted = TypeVar("Accepted", contravariant=True)


class Trainable(Protocol[Accepted]):
    """A model as the training loop sees it.

    A model that learns otherwise in its first updates, such as a Transformer whose attention
    starts as softmax, has a method ``in_training(updates)`` too. Given how many updates are done,
    it returns the model, with the same parameters, whose ``loss`` the next one takes.

    A model with a few numbers that are worth following, such as the α of its heads, has a method
    ``watched()`` that returns them by name, as JSON can hold them, always under the same names: the
    history keeps them.

    A model that may be of a kind that cannot be trained has a method ``check_trainable()``, which
    raises a ValueError then: it is called before anything is written.

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
            Switches dropout on; every random number comes from it.
        """


class BatchSource(Protocol[Batch]):
    """Batches for one epoch after another.

    Attributes
    ----------
    unit : str
        What `count` counts, such as "examples" or "tokens".
    identity : dict
        What determines the batches, apart from the generator, in a form that JSON can hold. A run
        is resumed only if it is the same.
    """

    @property
    def unit(self) -> str: ...
    @property
    def identity(self) -> dict[str, Any]: ...

    def epoch(self, rng: np.random.Generator) -> Iterable[Batch]:
        """The batches of one epoch; they depend on nothing but the generator's state.

        A run that is resumed within an epoch draws the same epoch again, from the same state, and
        skips the batches that are done. So a source may draw as it goes, but not remember anything
        from one epoch to the next.
        """

    def count(self, batch: Batch) -> int:
        """How many units a batch holds: for the speed that the user sees, and as the weight of its
        mean loss among those of the other batches of an update."""
