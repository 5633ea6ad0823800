"""All mappings, their derivatives and their losses: a line for each file.

`pyentmax` takes its names from here, and `MAPPINGS` its records.
"""

from pyentmax.mappings.softmax import *  # noqa: F403, I001  # in the order of MAPPINGS
from pyentmax.mappings.sparsemax import *  # noqa: F403
from pyentmax.mappings.entmax15 import *  # noqa: F403
from pyentmax.mappings.entmax import *  # noqa: F403
from pyentmax.mappings.entmax_sigmoid import *  # noqa: F403
from pyentmax.losses.one_vs_all import *  # noqa: F403
from pyentmax.mappings.normmax import *  # noqa: F403
from pyentmax.mappings.topk_softmax import *  # noqa: F403
from pyentmax.mappings.topk_sparsemax import *  # noqa: F403
from pyentmax.mappings.fusedmax import *  # noqa: F403
from pyentmax.mappings.oscarmax import *  # noqa: F403
from pyentmax.mappings.csoftmax import *  # noqa: F403
from pyentmax.mappings.csparsemax import *  # noqa: F403
from pyentmax.mappings.budget_sparsemax import *  # noqa: F403

__all__ = [name for name in globals() if name[0].islower()]
