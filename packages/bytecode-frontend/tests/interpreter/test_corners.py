"""Small corners of the language: tracebacks, parts of exception groups, patterns, operators of sets."""

from __future__ import annotations

import pytest
import told

PROGRAMS = told.programs("""
from collections.abc import Mapping, Sequence
def tbl(x):
    try:
        y=x+1
        raise ValueError(
            1)
    except ValueError as e:
        return y, e.__traceback__.tb_lineno
def tbl2(x):
    def g():
        h()
    def h():
        z = 1
        return z/0
    try:
        g()
    except ZeroDivisionError as e:
        return x+1, places(e), [f.lineno for f in traceback.extract_tb(e.__traceback__)]
def tbl3(x):
    try:
        B(x)
        int("x")
    except ValueError as e:
        return x+1, places(e)
def esr(x):
    try:
        try:
            raise ExceptionGroup("a",[ValueError(1),TypeError(2)])
        except* ValueError:
            raise
    except ExceptionGroup as e:
        return x+1, places(e), [places(i) for i in e.exceptions], str(e)
def esr2(x):
    try:
        try:
            raise ExceptionGroup("a",[ValueError(1),TypeError(2)])
        except* ValueError as g:
            raise KeyError(1)
    except ExceptionGroup as e:
        return x+1, places(e), [places(i) for i in e.exceptions], str(e), [str(i) for i in e.exceptions]
class MS(Mapping, Sequence):
    def __getitem__(s,i): return [7,8][i]
    def __len__(s): return 2
    def __iter__(s): return iter([0,1])
def pm(x):
    match MS():
        case [a,b]: r=("s",a,b)
        case {}: r=("m",)
        case _: r="none"
    return x,r
def pm2(x):
    match MS():
        case {0:a}: r=("m",a)
        case [a,b]: r=("s",a,b)
        case _: r="none"
    return x,r
def fk(x):
    f=frozenset([1,2]); d={1:2}; a=f&d.keys(); b=d.keys()&f; c={1}&d.keys(); e=f|d.keys(); g=f-d.keys(); h=f^d.keys()
    return x,[ (type(i).__name__,i) for i in (a,b,c,e,g,h)]
def sl(x):
    try: slice()
    except TypeError as e: return x, str(e)
def sl2(x): slice(); return x
def sl3(x): range(); return x+1
def eg1(x):
    try: ExceptionGroup("a", [])
    except ValueError as e: r=str(e)
    try: ExceptionGroup("a", [1])
    except ValueError as e: r2=str(e)
    try: ExceptionGroup(1, [ValueError()])
    except TypeError as e: r3=str(e)
    try: ExceptionGroup("a")
    except TypeError as e: r4=str(e)
    try: ExceptionGroup("a", 5)
    except TypeError as e: r5=str(e)
    try: ExceptionGroup("a", [KeyboardInterrupt()])
    except TypeError as e: r6=str(e)
    try: ExceptionGroup("a", {ValueError()})
    except TypeError as e: r7=str(e)
    return x,r,r2,r3,r4,r5,r6,r7
class Meta(type):
    @classmethod
    def __prepare__(m,n,b,**k): LOG.append("prepare"); return {}
    def __new__(m,n,b,ns,**k):
        LOG.append("new"); return super().__new__(m,n,b,ns)
class MetaB(type):
    @classmethod
    def __prepare__(m,n,b,**k): LOG.append("prepare"); return {}
    def __new__(m,n,b,ns,**k):
        LOG.append("new"); B(torch.ones(1)); return super().__new__(m,n,b,ns)
class MetaC(type):
    def __new__(m,n,b,ns): ns.pop("__classcell__",None); return super().__new__(m,n,b,ns)
def meta1(x):
    class A(metaclass=Meta): y=1
    return x+A.y
def meta2(x):
    class A(metaclass=MetaB): y=1
    return x+A.y
def meta3(x):
    class A(metaclass=MetaC):
        def f(s): return __class__
    return x+1
def meta4(x):
    class A:
        locals()["z"]=3
        for i in range(2): locals()["q%d"%i]=i
    return x+A.z, A.q1
class EG(ExceptionGroup):
    def derive(self, e): return EG(self.message, e)
class EG2(ExceptionGroup):
    def __new__(cls, m, e, k): s=super().__new__(cls,m,e); s.k=k; return s
def kinds_of_groups(x):
    g=BaseExceptionGroup("a",[ValueError(1)]); h=BaseExceptionGroup("a",(KeyboardInterrupt(),ValueError())); return x, type(g).__name__, type(h).__name__, repr(g), len(h.exceptions)
def a_group_of_the_program(x):
    try: EG("a",[KeyboardInterrupt()])
    except TypeError as e: return x+1, str(e)
def a_group_with_more(x):
    g=EG2("a",[ValueError(1)],3); return x, g.k, g.message, g.args
def a_group_of_three(x):
    try: ExceptionGroup("a",[ValueError()],3)
    except TypeError as e: return x+1, str(e)
def a_group_of_nothing(x):
    try: ExceptionGroup()
    except TypeError as e: return x+1, str(e)
def parts_of_groups(x):
    g=ExceptionGroup("a",[ValueError(1),TypeError(2)]); m,r=g.split(ValueError); s=g.subgroup(lambda e: isinstance(e,TypeError)); return x, repr(m), repr(r), repr(s)
def a_group_handled(x):
    try: raise EG("a",[ValueError(1),KeyError(2)])
    except* ValueError as e: LOG.append(repr(e))
    except* KeyError as e: LOG.append((repr(e),places(e)))
    return x+1
def traceback_of_an_exception_being_handled(x):
    try:
        raise KeyError(1)
    except KeyError as e:
        try:
            B(x)
            int("x")
        except ValueError as f:
            return x, places(e), places(f), places(f.__context__)
def notes_of_a_part(x):
    try:
        try:
            g = ExceptionGroup("a", [ValueError(1), TypeError(2)])
            g.add_note("n")
            raise g from KeyError(0)
        except* ValueError as e:
            B(x)
            raise
    except ExceptionGroup as e:
        return x, e.__notes__, repr(e.__cause__), e.__suppress_context__, repr(e)
""")


@pytest.mark.filterwarnings("ignore:FE090")
@pytest.mark.parametrize("name", PROGRAMS)
def test_corner(name: str) -> None:
    told.differs(PROGRAMS[name])
