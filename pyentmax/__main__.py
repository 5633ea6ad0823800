"""``python -m pyentmax``."""

import sys

from .cli import main

sys.exit(main())
