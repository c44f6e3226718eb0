"""How exceptions and their tracebacks leave captured code: raised once more through frames that show the user's lines."""

from __future__ import annotations

from ..breaks.continuation import Placed, forgetting
from ..values.exceptions import LINKS, ExceptionObject, Passage, TracebackValue
from ..values.objects import builtin_base
from .rebuild import Rebuilder, fill_attributes, rebuilds
from .sources import Stub


@rebuilds(ExceptionObject)
def exception(r: Rebuilder, value: ExceptionObject) -> str:
    """An exception with its arguments, fields and the frames that it was raised through."""
    if value.source is not None:
        return r.source(value.source)
    cls = r.class_name(value.cls)
    given = r.list(value.given())
    name = r.assign(value, f"{cls}.__new__({cls}, {given})")
    base = builtin_base(value.cls)
    if base.__init__ is not BaseException.__init__:  # fills in what the class keeps beside the arguments
        r.body.append(f"{r.constants.name(base)}.__init__({name}, {given})")
    if isinstance(value.fields["__traceback__"], TracebackValue) and value.fields["__traceback__"].raised is value:
        r.body += raised_through(r, value.passages, name)
    for field, item in value.fields.items():
        if field not in LINKS:
            r.body.append(f"{name}.{field} = {r.expr(item)}")
        elif item is not LINKS[field] and not (field == "__traceback__" and getattr(item, "raised", None) is value):
            r.body.append(f"{name}.{field} = {r.expr(item)}")
    return fill_attributes(r, value, name)


def raised_through(r: Rebuilder, passages: list[Passage], name: str) -> list[str]:
    """Statements that raise an exception and let it come up to where it was caught: its traceback shows the frames and lines of the
    user's."""
    raising = f"raise {name}"
    for passage in passages:
        if passage.outermost:
            return ["try:", Placed.at(f"    {raising}", passage.position), "except BaseException: pass"]
        raising = raising.replace(name, "_e")
        stub = Stub(passage.code, passage.globals, ["_e"], forgetting([Placed.at(raising, passage.position)], ["_e"]))
        raising = f"{r.constants.define(stub)}({name})"
    return ["try:", f"    {raising}", f"except BaseException: {name}.__traceback__ = {name}.__traceback__.tb_next"]


@rebuilds(TracebackValue)
def traceback(r: Rebuilder, value: TracebackValue) -> str:
    """The traceback of a rebuilt exception."""
    if value.source is not None:
        return r.source(value.source)
    if not isinstance(value.raised, ExceptionObject) or value.raised.fields.get("__traceback__") is not value:
        value.refuse(r.vm)
    return f"{r.expr(value.raised)}.__traceback__"
