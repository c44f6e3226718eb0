"""When what the program made is gone: frames that raised or caught an exception do not keep it, nor each other, until the collector comes;
and iterators that are left behind do not run ahead of the program."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch

from opmill_bytecode_frontend import capture

HEAD = """
import enum
class kinds(enum.Enum):
    RED = 1
LOG = []
class M:
    def __del__(self): LOG.append("dead")
@torch.compiler.disable
def B(*a): return a[0] if a else None
@torch.compiler.disable
def made(): return M()
@torch.compiler.disable
def bad(*a): raise KeyError(1)
"""

PROGRAMS = """
def f1(x):
    p=made(); raise ValueError(0) from KeyError(1)
def f2(x):
    p=made(); raise ValueError(0)
def f3(x):
    p=M(); B(); raise ValueError(0)
def f4(x):
    p=M(); raise ValueError(0)
def f5(x):
    p=M(); y=x+1; raise ValueError(y.shape) from None
def f6(x):
    p=M()
    try: B(x); raise KeyError(1)
    finally: x+1
def f7(x):
    p=M()
    try: B(x); raise KeyError(1)
    except KeyError: raise ValueError
def f8(x):
    p=M()
    def g():
        B(); raise ValueError(0)
    g()
def f9(x):
    p=M()
    try:
        B(x); raise KeyError(1)
    except KeyError as e:
        q=e
        raise
def f10(x):
    def g():
        p=M()
        yield 1
        raise ValueError
    for i in g(): B(x)
def f11(x):
    p=M(); [].pop()
def f12(x):
    p=made(); x+1; {}[x.shape[0]]
def f13(x):
    p=made()
    try: bad()
    except KeyError: pass
    return x+1
def f14(x):
    p=made()
    try: bad()
    except ValueError: pass
    return x+1
def f15(x):
    p=made()
    bad(); return x
def f16(x):
    p=made()
    try: bad()
    except KeyError: raise
def f17(x):
    p=made()
    try: bad()
    except KeyError as e: raise ValueError(2) from e
def f18(x):
    p=made()
    try: bad()
    finally: B(x)
def f19(x):
    p=made()
    def g():
        q=M(); bad()
    try: g()
    except KeyError as e: B(x)
    LOG.append("end")
def f20(x):
    p=made()
    def g():
        q=M(); B(x); raise KeyError(3)
    try: g()
    except KeyError as e: x+1
    LOG.append("end")
    return x+1
def f21(x):
    p=made()
    with contextlib.suppress(KeyError):
        q=M(); B(x); raise KeyError(3)
    LOG.append("end")
    return x+1
def f22(x):
    p=made()
    for i in range(2):
        try:
            q=M(); B(x); raise KeyError(3)
        except KeyError: pass
        del q
    LOG.append("end")
    return x+1
def f23(x):
    def g(n):
        q=M(); B(x)
        if n==0: raise KeyError
        g(n-1)
    try: g(2)
    except KeyError: LOG.append("c")
    LOG.append("end")
    return x+1
def f24(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    for k in w(1):
        q=M(); raise KeyError
def f25(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    try:
      for k in w(1):
        B(x); q=M(); raise KeyError
    except KeyError: LOG.append("k")
    return x+1
def f26(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    try:
      for k in w(1):
        ExceptionGroup(1,[1])
    except Exception: LOG.append("k")
    return x+1
def f27(x):
    p=made(); assert x.shape[0]==7, "no"
def f28(x):
    p=made(); x.foo
def f29(x):
    p=made(); x @ torch.ones(7,7)
def f30(x):
    p=made(); 1/0
def f31(x):
    p=made(); next(iter([]))
def f32(x):
    p=made(); undefined
def f33(x):
    p=made(); a,b=[1]
def h1(x):
    n=1
    for j in range(3):
        for k in iter(lambda: n % 3, 0):
            n += 1
            B(x)
            LOG.append((n,k))
            n = n + 1
        n = n + 2
    return x+1
def h2(x):
    n=1
    it=iter(lambda: n, 4)
    for k in it:
        n+=1
        B(x)
        LOG.append(k)
    LOG.append(list(it))
    return x+1
def h3(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    try:
        d={1:1}
        if d:
          def inner(a=1): return n
          for k in w(1):
            ExceptionGroup(1,[1])
    except Exception as e: LOG.append(("k", str(e)))
    return x+1
def h4(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    try:
          for k in w(1):
            raise KeyError
    except Exception as e: LOG.append(("k", e.__traceback__.tb_lineno))
    return x+1
def h5(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    try:
          for k in w(1):
            int("q")
    except Exception as e: LOG.append(("k", e.__traceback__.tb_lineno))
    return x+1
def h6(x):
    def w(n):
        try: yield n
        finally: LOG.append("walked")
    for k in range(2):
        try:
          for k in w(1):
            B(x); int("q")
        except Exception as e: LOG.append(("k", e.__traceback__.tb_lineno))
    return x+1
def w(n):
    try:
        yield n
        yield n + 1
    finally: LOG.append("walked")
def h7(x):
    for k in w(1):
        B(x)
        if x.shape[0]: break
    LOG.append("behind")
    return x+1
def h8(x):
    for k in w(1):
        for j in enumerate(w(2)):
            B(x)
            break
        LOG.append("inner")
        B(x)
        break
    LOG.append("behind")
    return x+1
def h9(x):
    for k in (j for j in w(1)):
        B(x)
        if x.shape[0]: break
    LOG.append("behind")
    return x+1
def h10(x):
    for k in w(1):
        try: B(); raise KeyError(1)
        except* KeyError as e:
            LOG.append(0)
            raise
def h12(x):
    it = w(1)
    LOG.append(next(it))
    B(x)
    kinds(0)
def h13(x):
    it = w(1)
    LOG.append(next(it))
    B(x)
    x.reshape(7)
def h11(x):
    for k in w(1): bad()
"""


def programs():
    namespace = {"torch": torch, "contextlib": contextlib}
    exec(compile(HEAD + PROGRAMS, "<frames>", "exec"), namespace)
    return namespace


NAMES = [name for name in programs() if name[0] in "fh" and name[1:].isdigit()]


def outcomes(namespace, called):
    """What the program tells while it runs, and what dies when it has ended, twice."""
    seen = []
    for _ in range(2):
        namespace["LOG"].clear()
        with contextlib.suppress(Exception):
            called(torch.ones(1))
        seen.append(list(namespace["LOG"]))
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_frames_let_go(name):
    namespace = programs()
    function = namespace[name]
    gc.collect()
    gc.disable()
    try:
        assert outcomes(namespace, capture(function, "eager")) == outcomes(namespace, function)
    finally:
        gc.enable()
