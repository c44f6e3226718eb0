"""Random small programs (`random_programs`), captured against plain: results, changes, exceptions, prints over several calls.

``OPMILL_FUZZ=n`` runs n programs, others each time; otherwise a few, always the same.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_programs import FOOT, HEAD, Random, compiles, difference, program, shrunk

from opmill_bytecode_frontend import capture

FUZZ = os.environ.get("OPMILL_FUZZ")


def captured(function):
    return capture(function, "eager")


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=int(FUZZ or 40), deadline=None, derandomize=FUZZ is None, database=None, report_multiple_bugs=False, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(st.integers(0, 2**32))
def test_random_programs(seed: int) -> None:
    text = program(Random(seed))
    if compiles(text) and (found := difference(captured, text)) is not None:
        small = shrunk(captured, text)
        raise AssertionError(f"seed {seed}\n{small}\n{difference(captured, small) or found}")


#: Programs that were wrong once.
FOUND = {
    "a class method of C called natively": """
    try:
        for q in list(dict.fromkeys([2, int(t.sum().tolist() * 4) % 7])):
            l.append(str(type(q).__name__))
    except ZeroDivisionError:
        pass
    1 // 0
""",
    "a value sent to a generator that has not begun": """
    gen = counting(int(n > 1), l)
    try:
        m = gen.send(m)
    except StopIteration as e:
        l.append(e.value)
""",
    "the context of an exception that waits for the end of a finally block": """
    try:
        try:
            raise ValueError(1)
        except ValueError as e:
            del d["nowhere"]
    finally:
        t = t + t.sum().tolist()
""",
    "an exception whose class sets its arguments after a break": """
    with contextlib.ExitStack() as stack:
        stack.enter_context(logged(l, "stack"))
        l.append(abs(1 + o))
        raise Stop(a.sum().tolist())
""",
    "the cause of an exception that leaves": """
    try:
        raise Stop(n) from KeyError(1)
    finally:
        m = int(t.sum().tolist())
""",
    "an attribute is given what it was at the capture, and not at another call": """
    o.k = Base.factor
""",
    "a dictionary that grows while a comprehension walks it": """
    l.append([k for k in d if k != d.setdefault(m, 3)])
""",
    "a variable that nested functions share and that nothing was assigned to": """
    try:
        del m
        t = t + t.sum().tolist()
        m += 1
    except UnboundLocalError as e:
        l.append(str(e))
""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_programs_that_were_wrong_once(body: str) -> None:
    assert difference(captured, HEAD + body + FOOT) is None
