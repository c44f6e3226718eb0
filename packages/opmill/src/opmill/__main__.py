"""``python -m opmill``: the ``opmill`` command."""

import sys

from .cli import main

sys.exit(main())
