"""Iterators see what happens to what they walk over, before a graph break and behind it."""

from __future__ import annotations

import pytest
import told

PROGRAMS = told.programs("""
def iter_set(x):
    s={1,2}
    for k in s: B(x); s.add(k+10)
    return x
def iter_set0(x):
    s={1,2}
    for k in s: x=x+1; s.add(k+10)
    return x
def iter_dict(x):
    d={0:1,1:2};
    for k in d: B(x); del d[0]; d[0]=0
    return x+1, d
def iter_dict2(x):
    d={0:1,1:2};
    for k in d: B(x); d[k+10]=1
    return x+1, d
def iter_dict_of_one(x):
    d={0:1}
    for k in d: B(x); del d[0]; d[0]=0
    return x+1, d
def iter_dict_of_one_without_break(x):
    d={0:1}
    for k in d: x=x+1; del d[0]; d[0]=0
    return x, d
def comparing(kind, n):
    class Changing:
        def __eq__(self, other): made.append(1); return other == n
    made = kind([Changing(), 3]); return made
def sought_in_what_changes(x):
    out=[]
    for n in (3, 7):
        d=comparing(collections.deque, n)
        for op in (lambda: 3 in d, lambda: d.count(3), lambda: d.index(3), lambda: d.remove(3), lambda: d.remove(77)):
            try: out.append(op())
            except Exception as e: out.append(repr(e))
        out.append(len(d))
    return x+1, out
def sought_in_a_list_that_changes(x):
    d=comparing(list, 7)
    return x+1, 3 in d, d.count(3), d.index(3), len(d)
def iter_items(x):
    d={0:1,1:2};
    for k,v in d.items(): B(x); d[k+10]=1
    return x+1, d
def iter_dq(x):
    pass
    d=collections.deque([1,2])
    for k in d: B(x); d.append(1)
    return x
def iter_list(x):
    d=[1,2]; n=0
    for k in d: B(x); n+=1; (d.append(1) if n<5 else 0)
    return x+n, d
def iter_listrm(x):
    d=[1,2,3,4]; o=[]
    for k in d: B(x); o.append(k); d.remove(k)
    return x, d, o
def iter_dict_rev(x):
    d={0:1,1:2};
    for k in reversed(d): B(x); d[k+10]=1
    return x+1, d
S0 = {1, 2, 3}
def iter_given(x):
    it=iter(S0)
    next(it); B(x); S0.add(99)
    try: next(it)
    finally: S0.discard(99)
    return x
def begun_before_the_change(x):
    d = {0: 1, 1: 2}
    it = iter(d)
    next(it)
    del d[1]
    d[1] = 5
    y = B(x)
    return y, list(it)
def begun_and_values_changed(x):
    d = {0: 1, 1: 2}
    it = iter(d.items())
    next(it)
    d[1] = 5
    y = B(x)
    return y, list(it)
def keys_taken_and_put_back(x, d={0: 1, 1: 2, 2: 3}):
    for k in d:
        B(x)
        d[k] = d.pop(k)
    return x, d
def popped_while_walked(x):
    d = {0: 1, 1: 2, 2: 3}
    for k in d:
        B(x)
        d.popitem()
    return x
def cleared_while_walked(x):
    s = {1, 2, 3}
    for k in s:
        B(x)
        s.clear()
    return x
def one_for_another(x):
    s = {1, 2, 3}
    out = []
    for k in s:
        B(x)
        out.append(k)
        s.discard(k)
        s.add(k)
    return x, out
def views(x):
    d = {1: 2, 3: 4}
    e = {3: 4, 5: 6}
    return x, d.keys() & e.keys(), d.keys() | e, d.items() ^ e.items(), d.keys() - e.keys(), {1} <= d.keys(), d.keys() == {1, 3}
def order_of_a_given_set(x, s={1, 2, 3}):
    s.add(16)
    s.add(4)
    y = B(x)
    out = list(s)
    s -= {16, 4}
    return y, out
def backwards_through_a_list(x):
    l = [1, 2, 3]
    it = reversed(l)
    next(it)
    B(x)
    l[0] = 7
    return x, list(it)
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_changes_while_iterating(name: str) -> None:
    told.differs(PROGRAMS[name])
