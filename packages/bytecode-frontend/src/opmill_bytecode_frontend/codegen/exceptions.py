"""How exceptions and their tracebacks leave captured code: raised once more through frames that show the user's lines."""

from __future__ import annotations

from ..breaks.continuation import Placed, forgetting
from ..values.base import find_in_mro, written_in_python
from ..values.exceptions import LINKS, ExceptionObject, TracebackValue
from ..values.objects import builtin_base
from .rebuild import Rebuilder, fill_attributes, rebuilds
from .sources import Constants, Stub


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
        r.body += raised_through(r, value, name)
    for field, item in value.fields.items():
        passed = field == "__traceback__" and getattr(item, "raised", None) is value
        if field not in LINKS or not (item is LINKS[field] or passed):
            r.body.append(written_field(r.constants, value.cls, name, field, r.expr(item)))
    return fill_attributes(r, value, name)


def written_field(constants: Constants, cls: type, name: str, field: str, new: str) -> str:
    """A statement that sets what the class implemented in C keeps of an exception (``args``, ``__cause__``, ...). The class of the program
    is not asked: it may refuse to be written to, or have something else of that name."""
    if not is_asked(cls, "__setattr__") and not is_asked(cls, field):
        return f"{name}.{field} = {new}"
    return f"{constants.name(getattr(builtin_base(cls), field))}.__set__({name}, {new})"


def read_field(constants: Constants, cls: type, name: str, field: str) -> str:
    """An expression that reads such a field, past the class as well."""
    if not is_asked(cls, "__getattribute__") and not is_asked(cls, field):
        return f"{name}.{field}"
    return f"{constants.name(getattr(builtin_base(cls), field))}.__get__({name})"


def is_asked(cls: type, name: str) -> bool:
    """Whether a class of the program says what a name is."""
    owner, _ = find_in_mro(cls.__mro__, name)
    return owner is not None and written_in_python(owner)


def raised_through(r: Rebuilder, value: ExceptionObject, name: str) -> list[str]:
    """Statements that raise an exception and let it come up to where it was caught: its traceback shows the frames and lines of the
    user's."""
    cls, raising = value.cls, f"raise {name}"
    for passage in value.passages:
        if passage.outermost:
            return ["try:", Placed.at(f"    {raising}", passage.position), "except BaseException: pass"]
        raising = raising.replace(name, "_e")
        stub = Stub(passage.code, passage.globals, ["_e"], forgetting([Placed.at(raising, passage.position)], ["_e"]))
        raising = f"{r.constants.define(stub)}({name})"
    inner = f"{read_field(r.constants, cls, name, '__traceback__')}.tb_next"
    return ["try:", f"    {raising}", f"except BaseException: {written_field(r.constants, cls, name, '__traceback__', inner)}"]


@rebuilds(TracebackValue)
def traceback(r: Rebuilder, value: TracebackValue) -> str:
    """The traceback of a rebuilt exception."""
    if value.source is not None:
        return r.source(value.source)
    if not isinstance(value.raised, ExceptionObject) or value.raised.fields.get("__traceback__") is not value:
        value.refuse(r.vm)
    return read_field(r.constants, value.raised.cls, r.expr(value.raised), "__traceback__")
