"""How sets and frozensets leave captured code: in the order that Python's own would have."""

from __future__ import annotations

from ..values.base import program_hash
from ..values.constant import ConstantValue
from ..values.mapping import DictValue, SetValue
from ..values.set_order import as_added, same_order, same_past
from .rebuild import Rebuilder, rebuilds


@rebuilds(SetValue)
def set_(r: Rebuilder, value: SetValue) -> str:
    """A set or a frozenset, made in the way that gives its items in the order that they had."""
    if value.source is not None:
        return r.source(value.source)
    found = same_order(value.layout, value.items)
    if found is None and type(value.layout) is value.cls and same_past(value.layout, value.steps):
        return _made_again(r, value)
    way, items = found or as_added(value.items)
    if not any(program_hash(key) is not None for key in value.items):
        given = f"[{r.list(items)}]"
    else:  # a set takes the hashes of a dictionary over
        given = r.expr(DictValue({key: (item, ConstantValue(None)) for key, item in value.items.items()}))
    if (known := r.known(value)) is not None:  # one of its items holds it
        return known
    names = {cls.__name__: r.constants.name(cls) for cls in (set, dict) if f"{{{cls.__name__}}}" in way.text}
    return r.assign(value, way.text.format(cls=r.constants.name(value.cls), items=given, filling=way.filling, **names))


def _made_again(r: Rebuilder, value: SetValue) -> str:
    """By what it went through, of constants."""
    calls = [(r.constants.name(step), [r.constants.name(each) for each in given]) for step, given in value.steps]
    (first, given), *others = calls
    made = r.assign(value, f"{first}({', '.join(given)})")
    r.body += [f"{step}({', '.join([made, *given])})" for step, given in others]
    return made
