"""Objects that hand on to another one in C: attributes, operators and calls are what the program finds when it runs, and none is made by the
capture itself."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest
import torch
from alike import outcome, same

from opmill_bytecode_frontend import capture

TARGET = types.SimpleNamespace(factor=3.0, name="first", items=[1, 2])
GETATTRO, DEFAULT, BASETYPE = 58, 1 << 18, 1 << 10
"""Numbers of Python's headers."""


class Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(Slot)),
    ]


@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)
def look_up(_self: Any, name: str) -> Any:
    return getattr(TARGET, name, None)


SLOTS = (Slot * 2)(Slot(GETATTRO, ctypes.cast(look_up, ctypes.c_void_p)), Slot(0, None))
SPEC = Spec(b"proxies.Handing", object.__basicsize__, 0, DEFAULT | BASETYPE, SLOTS)
MAKE = ctypes.pythonapi.PyType_FromSpec
MAKE.restype, MAKE.argtypes = ctypes.py_object, [ctypes.POINTER(Spec)]
Handing: Any = MAKE(ctypes.byref(SPEC))


class Derived(Handing):
    factor = 7.0

    def own(self) -> str:
        return "own"


def reads(it: Any, x: torch.Tensor) -> Any:
    return x * it.factor, it.name, it.items[0], it.__class__, it.own


def asks(it: Any, x: torch.Tensor) -> Any:
    return hasattr(it, "factor"), bool(it), type(it).__name__, isinstance(it, Derived), it is None, x + 1


def makes(it: Any, x: torch.Tensor) -> Any:
    made = type(it)()
    return x + made.factor, made.name, type(made) is type(it)


def writes(it: Any, x: torch.Tensor) -> Any:
    y = x + 1
    it.factor = 5.0
    return y * it.factor


def hands_on(it: Any, x: torch.Tensor) -> Any:
    return [it, x + 1][0] is it, {"it": it}["it"].name


@pytest.mark.parametrize("program", [reads, asks, makes, writes, hands_on])
@pytest.mark.parametrize("kind", [Handing, Derived])
def test_what_a_proxy_gives(program: Any, kind: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    compiled, x = capture(program, "eager"), torch.ones(2)
    for name in ("first", "second"):
        monkeypatch.setattr(TARGET, "name", name)
        monkeypatch.setattr(TARGET, "factor", float(len(name)))
        assert same(outcome(compiled, kind(), x), outcome(program, kind(), x))
    assert not [each for each in caplog.records if "internal error" in each.getMessage()]
