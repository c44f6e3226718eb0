"""Handlers are found by name: of opcodes in the versions that they serve, of callables by the objects themselves."""

import sys

import pytest

from opmill_bytecode_frontend.interpretation.opcodes import registry
from opmill_bytecode_frontend.library import registry as calls

NOW = sys.version_info[:2]
BEFORE, BEHIND = (NOW[0], NOW[1] - 1), (NOW[0], NOW[1] + 1)


@pytest.mark.parametrize(
    ("limits", "serves"),
    [({}, True), ({"since": NOW}, True), ({"until": NOW}, True), ({"since": BEHIND}, False), ({"until": BEFORE}, False), ({"since": BEFORE, "until": BEHIND}, True)],
    ids=["any", "since now", "until now", "later ones", "earlier ones", "around"],
)  # fmt: skip
def test_versions(monkeypatch, limits, serves):
    monkeypatch.setattr(registry, "HANDLERS", {})

    @registry.opcode("FIRST", "SECOND", **limits)
    def handler(vm, frame, ins):
        return None

    assert registry.HANDLERS == ({"FIRST": handler, "SECOND": handler} if serves else {})


@pytest.mark.parametrize("register", [calls.handles, calls.named, calls.receives_function, calls.handles_objects_of])
def test_a_call_has_one_handler(monkeypatch, register):
    """Two files that say what a call does would depend on which is imported last."""
    for table in ("HANDLERS", "NAMED", "NAMED_WITH_FUNCTION", "OBJECTS_OF"):
        monkeypatch.setattr(calls, table, {})

    @register(int, int)
    def first(vm):
        return None

    assert register(float)(first) is first
    with pytest.raises(ValueError, match="two handlers, .*first and .*second"):

        @register(float)
        def second(vm):
            return None
