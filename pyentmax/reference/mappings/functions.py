"""All mappings, their derivatives and their losses: a line for each file.

`pyentmax` takes its names from here, and `MAPPINGS` its records.
"""

from typing import TYPE_CHECKING

from pyentmax.reference.losses.one_vs_all import *  # noqa: F403
from pyentmax.reference.mappings.budget_sparsemax import *  # noqa: F403
from pyentmax.reference.mappings.csoftmax import *  # noqa: F403
from pyentmax.reference.mappings.csparsemax import *  # noqa: F403
from pyentmax.reference.mappings.entmax import *  # noqa: F403
from pyentmax.reference.mappings.entmax15 import *  # noqa: F403
from pyentmax.reference.mappings.entmax_sigmoid import *  # noqa: F403
from pyentmax.reference.mappings.fusedmax import *  # noqa: F403
from pyentmax.reference.mappings.normmax import *  # noqa: F403
from pyentmax.reference.mappings.oscarmax import *  # noqa: F403
from pyentmax.reference.mappings.softmax import *  # noqa: F403, I001  # in the order of MAPPINGS
from pyentmax.reference.mappings.sparsemax import *  # noqa: F403
from pyentmax.reference.mappings.topk_softmax import *  # noqa: F403
from pyentmax.reference.mappings.topk_sparsemax import *  # noqa: F403

if not TYPE_CHECKING:  # checkers take the names that the files list
    __all__ = [name for name in globals() if name[0].islower()]
