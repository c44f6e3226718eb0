"""Whether this Python can run the package's native code: builds without a global lock lay objects out otherwise, and take no locks for
us."""

from __future__ import annotations

import sysconfig


def refuse_free_threading() -> None:
    """Raises ImportError (RC090) in a free-threaded build of Python, whether its lock is switched on or not."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError("RC090: opmill does not run in free-threaded builds of Python\n  hint: use the usual build of the same version")
