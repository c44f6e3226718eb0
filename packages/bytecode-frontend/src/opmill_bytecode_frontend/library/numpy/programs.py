"""Functions of NumPy that are read as other programs of NumPy: their own ask what only data tell, and need not."""

from __future__ import annotations

from collections.abc import Callable

from .kernel import Told


def piecewise(x: Told, condlist: Told, funclist: Told, *args: Told, **kw: Told) -> Told:
    """``numpy.piecewise``, which also calls the functions where there are no items for them."""
    import numpy as np

    x = np.asanyarray(x)
    if np.isscalar(condlist) or (not isinstance(condlist[0], (list, np.ndarray)) and x.ndim != 0):
        condlist = [condlist]
    conditions = [np.asarray(each, dtype=bool) for each in condlist]
    if len(conditions) == len(funclist) - 1:
        some = conditions[0]
        for each in conditions[1:]:
            some = some | each
        conditions.append(~some)
    elif len(conditions) != len(funclist):
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected")
    made = np.zeros_like(x)
    for condition, function in zip(conditions, funclist):
        made[condition] = function(x[condition], *args, **kw) if callable(function) else function
    return made


PROGRAMS: dict[str, Callable[..., Told]] = {"piecewise": piecewise}

__all__ = ["PROGRAMS"]
