"""How programs that several processes run tell what came of each of their cases."""

import traceback
from collections.abc import Callable, Mapping

import opmill


def tell(cases: Mapping[str, Callable[[], str]]) -> None:
    """A line for each case: its name, and "right", what it says is wrong, or how it failed. Each begins as a new process would."""
    for name, case in cases.items():
        opmill.reset()
        try:
            found = case()
        except Exception:
            found = traceback.format_exc().strip().replace("\n", " | ")
        print(f"{name}: {found or 'right'}", flush=True)
