"""Plans as bytes: MessagePack with a magic word and a format version."""

from collections.abc import Container

import msgspec

from ..errors import PlanFormatError
from .model import Plan
from .verify import verify

FORMAT_VERSION = 1
"""Raised whenever a reader of the former version would misread a plan."""

_MAGIC = b"opmill-plan"


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    version: int
    plan: msgspec.Raw


_ENCODER = msgspec.msgpack.Encoder()
# Made at import: msgspec puts what it knows of a type into the type while it still asks Python for the annotations. Whoever decodes in
# between, another thread or a child forked then, crashes.
_ENVELOPE = msgspec.msgpack.Decoder(_Envelope)
_PLAN = msgspec.msgpack.Decoder(Plan, strict=True)


def encode(plan: Plan) -> bytes:
    """The bytes of a plan; equal plans give equal bytes."""
    return _MAGIC + _ENCODER.encode(_Envelope(FORMAT_VERSION, msgspec.Raw(_ENCODER.encode(plan))))


def decode(data: bytes, operators: Container[str] = ()) -> Plan:
    """The plan in ``data``, verified. It may call the operators of ``plan/operators.py``, and those that ``operators`` names (see
    `verify`). Raises PlanFormatError (RC001-RC005) and PlanError."""
    if not data.startswith(_MAGIC):
        raise PlanFormatError("RC001", what="these bytes are not a plan", why=f"they do not start with {_MAGIC!r}")
    try:
        envelope = _ENVELOPE.decode(memoryview(data)[len(_MAGIC) :])
        if envelope.version != FORMAT_VERSION:
            raise PlanFormatError(
                "RC002",
                what=f"the plan has format version {envelope.version}",
                why=f"this package reads {FORMAT_VERSION}",
                hint="compile again",
            )
        plan = _PLAN.decode(envelope.plan)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise PlanFormatError("RC003", what="the plan is malformed", why=str(error)) from None
    verify(plan, operators)
    return plan
