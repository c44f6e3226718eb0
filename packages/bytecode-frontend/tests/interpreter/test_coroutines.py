"""Coroutines that captured code makes and awaits, or asks as ``asyncio`` does: results, exceptions and warnings are Python's."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture

WHOLE = {
    "closure": """
def f(x,k):
    n=3
    async def g(): return x*n
    try: g().send(None)
    except StopIteration as e: return e.value+1
""",
    "nested": """
async def g(x): return x.sin()
async def h(x): return await g(x)+await g(x*2)
def f(x,k):
    try: h(x).send(None)
    except StopIteration as e: return e.value+1
""",
    "awaitable": """
class A:
    def __init__(s,x): s.x=x
    def __await__(s):
        got=yield s.x
        return s.x+got
async def h(x): return await A(x*2)+await A(x)
def f(x,k):
    c=h(x); y=c.send(None); z=c.send(y+1)
    try: c.send(z*2)
    except StopIteration as e: return e.value, y, z
""",
    "throw": """
class A:
    def __await__(s): yield 1
async def h(x,log):
    try: await A()
    except ValueError as e: log.append(str(e)); x=x+1
    finally: log.append('end')
    return x*2
def f(x,k):
    log=[]
    c=h(x,log); c.send(None)
    try: c.throw(ValueError('v'))
    except StopIteration as e: return e.value, log
""",
    "returned": """
async def g(x): return x*2
def f(x,k):
    c=g(x+1); return c
""",
    "coroutine deco": """
import types
@types.coroutine
def w(x):
    y=yield x
    return y*2
async def h(x): return await w(x)
def f(x,k):
    c=h(x); a=c.send(None)
    try: c.send(a+1)
    except StopIteration as e: return e.value
""",
}
ENDED = {
    "errors": """
async def g(x): return x
async def bad(x): await 3
async def stops(x): raise StopIteration(3)
async def twice(c):
    await c
    await c
class B:
    def __await__(s): return 3
class C:
    def __await__(s): return g(1)
async def b(): return await B()
async def c(): return await C()
def t(f):
    try: return f()
    except BaseException as e: return type(e).__name__,str(e)
def f(x,k):
    d=g(x); out=[t(lambda: iter(d)),t(lambda: next(d)),t(lambda:d.send(1)),t(lambda:list(d))]
    d.close()
    out+=[t(lambda:d.send(None)),t(lambda:d.throw(ValueError(2))),t(lambda:d.close())]
    out+=[t(lambda:bad(x).send(None)),t(lambda:stops(x).send(None)),t(lambda:twice(g(x)).send(None)),t(lambda:b().send(None)),t(lambda:c().send(None))]
    return x+1,[str(o) for o in out]
""",
    "never": """
async def g(x): return x
def f(x,k):
    g(x); return x+1
""",
    "suspended": """
class A:
    def __await__(s): yield 1
async def g(x):
    y=x*2
    await A()
    return y
def f(x,k):
    c=g(x+1); c.send(None); return c
""",
    "dropped": """
class A:
    def __await__(s): yield 1
async def g(x,log):
    try:
        y=x*2; await A()
    finally: log.append(3)
    return y
def f(x,k):
    log=[]; c=g(x+1,log); c.send(None); del c; return x,log
""",
    "breaks": """
import torch._dynamo as D
async def g(x):
    y=x*2
    D.graph_break()
    return y+1
async def h(x): return await g(x)+1
def f(x,k):
    try: h(x.sin()).send(None)
    except StopIteration as e: return e.value+1
""",
    "asyncio": """
import asyncio
async def g(x):
    await asyncio.sleep(0)
    return x*2
def f(x,k): return asyncio.run(g(x+1))*3
""",
    "with": """
class M:
    async def __aenter__(s): return 2
    async def __aexit__(s,*e): return False
async def h(x):
    async with M() as m: return x*m
def f(x,k):
    try: h(x).send(None)
    except StopIteration as e: return e.value+1
""",
}


def finished(found: Any) -> Any:
    """What a coroutine gives, one item after the other."""
    items: list[Any] = []
    while inspect.iscoroutine(found):
        try:
            items.append(found.send(None))
        except StopIteration as end:
            found = items, end.value
    return found


def outcomes(f: Any) -> list[Any]:
    told = []
    for k in range(3):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                found = finished(f(torch.ones(2) * k, k))
            except Exception as error:
                found = type(error).__name__, str(error)
        told.append((repr(found), [str(each.message) for each in heard]))
    return told


def function(text: str) -> Any:
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)
    return space["f"]


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE.keys())
def test_coroutines_are_captured_whole(text: str) -> None:
    made: list[Any] = []
    f = function(text)
    assert outcomes(capture(f, "eager", fullgraph=True, on_translation=made.append)) == outcomes(f)
    assert len(made) == 1


@pytest.mark.parametrize("text", ENDED.values(), ids=ENDED.keys())
def test_others_end_the_graph(text: str) -> None:
    f = function(text)
    assert outcomes(capture(f, "eager")) == outcomes(f)
