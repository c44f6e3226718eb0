"""When objects die: ``__del__``, weak references, callbacks and generators see it where the plain function has it."""

from __future__ import annotations

import gc

import pytest
import told
import torch

from opmill_bytecode_frontend import capture

SOURCE = """
class C: pass
class D:
    def __init__(s,n=0): s.n=n
    def __del__(s): LOG.append(("del",s.n))

def reference(x):
    o=C(); w=weakref.ref(o); a = w() is o; del o; return x+1, a, w() is None
def reference_and_break(x):
    o=C(); w=weakref.ref(o); y=B(x); del o; return y+1, w() is None
def reassigned(x):
    o=C(); w=weakref.ref(o); o=C(); return x+1, w() is None
def callback(x):
    o=C(); w=weakref.ref(o, lambda r: LOG.append("gone")); LOG.append("a"); del o; LOG.append("b"); return x+1
def dele(x):
    o=D(1); LOG.append("a"); del o; LOG.append("b"); return x+1
def read_by_the_result(x):
    o=D(1); del o; n=len(LOG); return x+n
def scope(x):
    def g():
        o=D(2); return 3
    k=g(); LOG.append("after"); return x+k
def popped(x):
    l=[D(1),D(2)]; l.pop(); LOG.append("p"); l.clear(); LOG.append("q"); return x+1
def attribute(x):
    c=C(); c.d=D(1); LOG.append("a"); c.d=None; LOG.append("b"); return x+1
def break_and_deleted(x):
    o=D(1); y=B(x); LOG.append("a"); del o; LOG.append("b"); return y+1
def break_and_assigned(x):
    o=D(1); y=B(x); n=len(LOG); o=None; y=B(y); return y+len(LOG)-n
def cycle(x):
    o=C(); o.me=o; w=weakref.ref(o); del o; gc.collect(); return x+1, w() is None
def cycle_and_break(x):
    o=C(); o.me=o; w=weakref.ref(o); y=B(x); del o; gc.collect(); return y+1, w() is None
def cycle_collected(x):
    o=D(1); o.me=o; del o; LOG.append('x'); gc.collect(); LOG.append('y'); return x+1
def weak_values(x):
    d=weakref.WeakValueDictionary(); o=C(); d[1]=o; n=len(d); del o; return x+1,n,len(d)
def weak_set(x):
    d=weakref.WeakSet(); o=C(); d.add(o); n=len(d); del o; return x+1,n,len(d)
def weak_keys(x):
    d=weakref.WeakKeyDictionary(); o=C(); d[o]=1; n=len(d); del o; return x+1,n,len(d)
def finalizer(x):
    o=C(); f=weakref.finalize(o, LOG.append, 5); del o; LOG.append(6); return x+1, f.alive
def proxy(x):
    o=C(); p=weakref.proxy(o); o.a=3; n=p.a; del o
    try: p.a
    except ReferenceError as e: return x+n, str(e)
    return x
@disabled
def mk(n): return D(n)
@disabled
def mkw():
    o=C(); return o, weakref.ref(o)
def deleted(x):
    o=mk(1); LOG.append("a"); del o; LOG.append("b"); return x+1
def kept_to_the_end(x):
    o=mk(1); y=B(x); LOG.append("end"); return y
def not_kept(x):
    mk(1); LOG.append("end"); return x+1
def only_on_the_stack(x):
    n=mk(7).n; LOG.append("end"); return x+n
def referred_and_deleted(x):
    o,w=mkw(); y=B(x); a=w() is o; del o; return y+1,a,w() is None
def referred_and_kept(x):
    o,w=mkw(); y=B(x); a=w() is None; return y+1,a
def assigned_again(x):
    o=mk(1); y=B(x); o=mk(2); LOG.append("mid"); z=B(y); LOG.append("end"); return z
def in_a_list(x):
    l=[mk(1),mk(2)]; y=B(x); l.pop(); LOG.append("p"); z=B(y); l.clear(); LOG.append("c"); return z
def inner(x):
    o=mk(3); LOG.append("in"); y=B(x); LOG.append("inend"); return y
def in_a_called_function(x):
    y=inner(x); LOG.append("out"); return y+1
def inner2(x):
    o=D(3); LOG.append("in"); y=B(x); LOG.append("inend"); return y
def made_in_a_called_function(x):
    y=inner2(x); LOG.append("out"); return y+1
def made_after_a_break(x):
    y=B(x); y=inner2(y); LOG.append("out"); return y+1
class H:
    def __init__(s): s.d=D(9); s.k=0
def of_an_attribute(x):
    h=H(); LOG.append("a"); h.d=None; LOG.append("b"); return x
HH=C()
def of_an_attribute_assigned(x):
    HH.d=mk(5); LOG.append("a"); HH.d=None; LOG.append("b"); return x+1
def of_an_attribute_deleted(x):
    HH.d=mk(5); LOG.append("a"); del HH.d; LOG.append("b"); return x+1
def in_a_list_of_before(x):
    GL.append(mk(1)); GL.append(mk(2)); y=B(x); LOG.append(1); GL.pop(); LOG.append(2); GL.clear(); LOG.append(3); return y
GL=[]
def of_a_global(x):
    global GG
    GG=mk(1); LOG.append("a"); GG=2; LOG.append("b"); return x+1
GG=0
def made_in_a_loop(x):
    for i in range(3):
        o=D(i); x=B(x); LOG.append(i)
    return x
def given_in_a_loop(x):
    for i in range(3):
        o=mk(i); x=B(x); LOG.append(i)
    return x
def in_a_closure(x):
    def f():
        o=D(1)
        def g(): return o
        return g
    g=f(); y=B(x); LOG.append(g().n); del g; LOG.append("e"); return y
def in_a_handler(x):
    try:
        o=D(1); raise ValueError(o)
    except ValueError as e:
        y=B(x); LOG.append("h")
    LOG.append("after"); del o; LOG.append("end")
    return y
def in_a_with_block(x):
    with torch.no_grad():
        o=D(1); y=B(x)
        del o; LOG.append("w")
    return y+len(LOG)
def a_tensor(x):
    t=x*2; w=weakref.ref(t); a=w() is t; del t; return x+1,a,w() is None
def a_tensor_after_a_break(x):
    t=x*2; y=B(t); w=weakref.ref(t); a=w() is t; del t; return y+1,a,w() is None
def referred_after_a_break(x):
    o=C(); y=B(x); w=weakref.ref(o); z=B(y); a=w() is o; o=None; return z, a, w() is None
W=None
def referred_globally(x):
    global W
    o=C(); W=weakref.ref(o); y=B(x); LOG.append(W() is o); del o; LOG.append(W() is None); return y
class Node:
    def __init__(s,p=None): s.p=weakref.ref(p) if p else None; s.c=[]; (p.c.append(s) if p else 0)
def a_tree(x):
    r=Node(); c=Node(r); y=B(x); a=c.p() is r; del r; return y,a,c.p() is None
def keys(x):
    d=weakref.WeakKeyDictionary(); k=[C() for _ in range(3)]
    for i,c in enumerate(k): d[c]=i
    y=B(x); n=len(d); k.pop(); m=len(d); del c; q=len(d); k.clear(); return y,n,m,q,len(d)
def a_generator(x):
    def gen():
        try:
            yield 1
        finally: LOG.append("fin")
    g=gen(); next(g); LOG.append("a"); del g; LOG.append("b"); return x+1
def a_generator_after_a_break(x):
    def gen():
        try:
            yield 1
        finally: LOG.append("fin")
    g=gen(); next(g); y=B(x); LOG.append("a"); del g; LOG.append("b"); return y+1
class R:
    def __init__(s,n): s.n=n
    def __del__(s): KEEP.append(s.n)
KEEP=[]
def before_results_are_read(x):
    o=R(1); KEEP.clear(); n=len(KEEP); o=None; m=len(KEEP); return x, n, m
class CM:
    def __enter__(s): return s
    def __exit__(s,*a): LOG.append("exit")
    def __del__(s): LOG.append("cmdel")
def a_manager(x):
    with CM(): y=B(x)
    LOG.append("end"); return y
def a_named_manager(x):
    with CM() as c: y=B(x); LOG.append("in")
    LOG.append("end"); return y
def a_method(x):
    o=C(); f=weakref.WeakMethod(H2().m); return x, f() is None
class H2:
    def m(s): return 1
def in_containers(x):
    s={D(1)}; LOG.append(1); s.clear(); LOG.append(2); d={1:D(2)}; d[1]=3; LOG.append(4); t=(D(5),); t=None; LOG.append(6); return x+1
def two_names(x):
    o=D(1); p=o; del o; LOG.append(1); del p; LOG.append(2); return x
def a_list_of_the_program(x):
    class L(list):
        def __del__(s): LOG.append(("L",len(s)))
    l=L([1,2]); y=B(x); LOG.append(0); del l; LOG.append(1); return y
def in_a_generator(x):
    import contextlib
    @contextlib.contextmanager
    def cm():
        o=D(1); yield o; LOG.append("x")
    with cm() as o: y=B(x); LOG.append("in")
    LOG.append("out"); del o; LOG.append("e"); return y
def an_argument(x):
    f=lambda o: LOG.append("in")
    f(D(1)); LOG.append("out"); return B(x)
def in_the_frame_of_a_traceback(x):
    try:
        with warnings.catch_warnings():
            o = [D(1), D(2)].pop()
            B(x)
        int("x")
    except Exception as e:
        LOG.append(places(e))
    return x
def a_generator_dropped_by_an_exception(x):
    def inner_walk(n):
        try:
            yield n
            yield n
        finally:
            LOG.append("walked")
    try:
        for k in inner_walk(3):
            B(x)
            raise KeyError(k)
    except KeyError as e:
        LOG.append(str(e))
    return x
def in_frames_walked(x):
    def inner_frames():
        o = D(3)
        f = sys._getframe()
        B(x)
        while f is not None and f.f_code.co_name != "outcome":
            LOG.append(f.f_code.co_filename == "<programs>" and f.f_code.co_name or 0)
            f = f.f_back
        LOG[:] = [each for each in LOG if each]
    inner_frames()
    LOG.append("after")
    return x
"""
PROGRAMS = told.programs(SOURCE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lives_end_where_they_do_in_the_plain_function(name: str) -> None:
    gc.disable()  # what only the collector frees is alive
    try:
        told.differs(PROGRAMS[name])
    finally:
        gc.enable()


def test_a_weak_reference_keeps_nothing_alive() -> None:
    class Held:
        value = 2

    held, told_of = Held(), []
    import weakref

    reference = weakref.ref(held)

    def f(x):
        found = reference()
        told_of.append(found is None)
        return x if found is None else x * found.value

    compiled = capture(f, "eager", fullgraph=True)
    x = torch.ones(2)
    assert compiled(x).tolist() == compiled(x).tolist() == [2, 2]
    del held
    gc.collect()
    assert compiled(x).tolist() == [1, 1]
    assert told_of == [False, False, True]
