"""Handlers are found by name: of opcodes in the versions that they serve, of callables by the objects themselves."""

import subprocess
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
    with pytest.raises(ValueError, match="two handlers, .*first:.* and .*second:"):

        @register(float)
        def second(vm):
            return None


INTERRUPTED = """
import sys
import torch

def told(frame, event, argument):
    global left
    if event == "call" and frame.f_code.co_name == "_put" and "opmill" in frame.f_code.co_filename:
        left -= 1
        if not left:
            sys.setprofile(None)
            raise KeyboardInterrupt

left = {left}
sys.setprofile(told)
try:
    from opmill_bytecode_frontend.entry.capture import capture
    print("not interrupted")
except KeyboardInterrupt:
    pass
from opmill_bytecode_frontend.entry.capture import capture
x = torch.randn(3)
print(torch.equal(capture(lambda x: x.sin() + 1)(x), x.sin() + 1))
"""


@pytest.mark.parametrize("left", [2, 60, 150, 300])
def test_an_import_that_is_interrupted_is_begun_again(left: int) -> None:
    """By Ctrl-C during the first compile, say: handlers that were there already are no second ones."""
    code = INTERRUPTED.replace("{left}", str(left))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True\n", done.stdout + done.stderr[-2000:]
