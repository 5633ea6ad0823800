"""``python -m pyentmax``."""

import sys

from pyentmax.cli import main

sys.exit(main())
