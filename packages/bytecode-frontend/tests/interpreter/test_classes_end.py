"""Classes end when nothing but compiled code knew them: what a module's classes hold, and all that the module of their methods holds, ends
with what was compiled of it."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
import weakref

import pytest
import torch

from opmill_bytecode_frontend import capture

PROGRAMS = {
    "an object that is made": """
class C4:
    def __init__(self,a): self.a=a
def program(x):
    c=C4(2)
    return x+c.a
""",
    "an object with slots": """
class C4:
    __slots__=("a",)
    def __init__(self,a): self.a=a
def program(x):
    c=C4(2)
    return x+c.a
""",
    "a class derived from another": """
class C4:
    def __init__(self,a): self.a=a
class C5(C4):
    def __init__(self,a):
        super().__init__(a)
def program(x):
    c=C5(2)
    return x+c.a
""",
    "isinstance": """
class C4:
    pass
def program(x):
    return x+isinstance(x,C4)
""",
    "an object that is given back": """
class C4:
    def __init__(self,a): self.a=a
def program(x):
    return C4(x+1)
""",
    "an object of the module": """
class C4:
    def __init__(self,a): self.a=a
G=C4(3)
def program(x):
    return x+G.a
""",
    "an object with slots that is given back": """
class C4:
    __slots__=("a",)
    def __init__(self,a): self.a=a
def program(x):
    return C4(x+1)
""",
    "an object of a derived class that is given back": """
class C4:
    def __init__(self,a): self.a=a
class C5(C4):
    def __init__(self,a):
        super().__init__(a)
def program(x):
    return C5(x+1)
""",
    "an object over a graph break": """
class C4:
    def __init__(self,a): self.a=a
def program(x):
    c=C4(x+1)
    B(x)
    return c.a
""",
    "an object with slots over a graph break": """
class C4:
    __slots__=("a",)
    def __init__(self,a): self.a=a
def program(x):
    c=C4(x+1)
    B(x)
    return c.a
""",
    "a data class": """
import dataclasses
@dataclasses.dataclass
class C4:
    a: int = 0
def program(x):
    c=C4(x+1)
    B(x)
    return c
""",
    "an enumeration": """
import enum
class E(enum.Enum):
    A=1
    B=2
def program(x):
    B(x)
    return x+E.A.value, E.B
""",
    "a named tuple": """
import typing
class P(typing.NamedTuple):
    a: int
def program(x):
    B(x)
    return P(x)
""",
    "an exception that is caught": """
class P(ValueError):
    pass
def program(x):
    try:
        B(x)
        raise P(3)
    except P as e:
        return x+1
""",
    "an exception that is raised": """
class P(ValueError):
    pass
def program(x):
    raise P(3)
""",
    "a class in a pattern": """
class C4:
    __match_args__=("a",)
    def __init__(self,a): self.a=a
def program(x):
    c=C4(1)
    match c:
        case C4(1): return x+1
    return x
""",
    "a context manager": """
class C4:
    def __enter__(self): return 3
    def __exit__(self,*a): return False
def program(x):
    with C4() as c:
        B(x)
        return x+c
""",
    "a default": """
class C4:
    def __init__(self,a): self.a=a
def program(x, c=C4(2)):
    return x+c.a
""",
    "an attribute of a class that is written": """
class C4:
    n=3
def program(x):
    C4.n+=1
    return x+C4.n
""",
    "types that are compared": """
class C4:
    n=3
class C5(C4): pass
L=[C5(),C4()]
def program(x):
    return x+sum(isinstance(l,C5) for l in L)+ (type(L[0]) is C5)
""",
    "an iterable": """
class C4:
    def __iter__(self):
        yield 1
        yield 2
def program(x):
    for i in C4(): x=x+i
    B(x)
    return x
""",
    "properties and methods of classes": """
class C4:
    @property
    def p(self): return 3
    @staticmethod
    def s(x): return x
    @classmethod
    def c(cls): return cls
def program(x):
    B(x)
    return x+C4().p+C4.s(1), C4.c()
""",
    "a metaclass": """
class M(type):
    pass
class C4(metaclass=M):
    a=1
def program(x):
    B(x)
    return x+C4.a, C4
""",
    "a module": """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.l=torch.nn.Linear(3,3); self.n=3
    def forward(self,x): return self.l(x[:3])+self.n
M=Net()
def program(x):
    return M(x)
""",
    "a module whose state changes": """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer("l",torch.ones(3)); self.n=3
    def forward(self,x):
        self.n+=1
        self.l=self.l+x[:3]
        return self.l+self.n
M=Net()
def program(x):
    return M(x)
""",
    "an autograd function and its gradient": """
import torch
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx,x): return x*2
    @staticmethod
    def backward(ctx,g): return g*2
def program(x):
    x=x.clone().requires_grad_()
    y=F.apply(x)
    y.sum().backward()
    return x.grad
""",
    "an autograd function": """
import torch
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx,x): return x*2
    @staticmethod
    def backward(ctx,g): return g*2
P=torch.nn.Parameter(torch.ones(1))
def program(x):
    return F.apply(P*x)
""",
    "a class of tensors": """
import torch
class T(torch.Tensor):
    pass
def program(x):
    return x.as_subclass(T)+1
""",
    "a class of tensors that is told of operators": """
import torch
class T(torch.Tensor):
    @classmethod
    def __torch_function__(cls,f,t,a=(),k=None):
        return super().__torch_function__(f,t,a,k or {})
Y=torch.ones(1).as_subclass(T)
def program(x):
    return x+Y
""",
    "a mode": """
import torch
class T(torch.overrides.TorchFunctionMode):
    def __torch_function__(self,f,t,a=(),k=None):
        return f(*a,**(k or {}))
def program(x):
    with T():
        return x+1
""",
    "an optimizer": """
import torch
class O(torch.optim.SGD):
    pass
P=torch.nn.Parameter(torch.ones(3))
o=O([P],lr=.1)
def program(x):
    P.grad=torch.ones(3)
    o.step()
    return x+1
""",
    "a generic function": """
import functools
class A: pass
@functools.singledispatch
def g(a,x): return x
@g.register
def _(a:A,x): return x+1
def program(x):
    return g(A(),x)
""",
    "a cached property": """
import functools
class A:
    @functools.cached_property
    def v(self): return 3
    @functools.lru_cache
    def w(self): return 4
I=A()
def program(x):
    return x+A().v
""",
    "an abstract class": """
import abc
class A(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
class Bb(A):
    def f(self): return 1
def program(x):
    return x+Bb().f()+isinstance(Bb(),A)
""",
    "a protocol": """
import typing
@typing.runtime_checkable
class A(typing.Protocol):
    def f(self): ...
class Bb:
    def f(self): return 1
def program(x):
    B(x)
    return x+Bb().f()+isinstance(Bb(),A)
""",
    "classes derived from those of Python": """
class D(dict):
    pass
class L(list): pass
class I(int): pass
class S(str): pass
class T(tuple): pass
def program(x):
    d=D(a=x); l=L([x])
    B(x)
    return d,l,I(3),S('a'),T((x,)), x+I(3)
""",
    "a registry of classes": """
class C:
    registry={}
    def __init_subclass__(cls): C.registry[cls.__name__]=cls
class Dd(C): pass
def program(x):
    C.registry['x']=Dd
    return x+len(C.registry)
""",
    "a generator": """
class K: a=1
def gen(x):
    yield x
    B(x)
    yield x+K.a
def program(x):
    return list(gen(x))
""",
    "a copy": """
import copy
class K:
    def __init__(self): self.a=1
G=K()
def program(x):
    k=copy.deepcopy(G)
    return x+k.a
""",
    "a hook": """
import torch
class K:
    def __call__(self,g): return g*2
def program(x):
    x=x.clone().requires_grad_()
    x.register_hook(K())
    (x*2).sum().backward()
    return x.grad
""",
    "an object of a number that changes": """
class K:
    def __init__(self,a): self.a=a
N=[0]
def program(x):
    N[0]+=1
    return x+K(N[0]).a
""",
    "checkpointing": """
import torch
class Net(torch.nn.Module):
    def forward(self,x):
        with torch.no_grad():
            return torch.utils.checkpoint.checkpoint(lambda y: y+1, x, use_reentrant=False)
import torch.utils.checkpoint
M=Net()
def program(x): return M(x)
""",
}
MODULE = "a_module_that_ends"


@torch.compiler.disable
def opaque(*values: object) -> object:
    return values[0]


def left(text: str, compiled: bool) -> list[str]:
    """Which classes and functions of a module outlive the module, with ``program`` called of it, and the compiled function."""
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    vars(module)["B"] = opaque
    exec(compile(text, MODULE, "exec"), vars(module))
    function = capture(module.program, "eager") if compiled else module.program
    try:
        for size in (3, 3, 4, 5):
            with contextlib.suppress(Exception):
                function(torch.ones(size))
    finally:
        del sys.modules[MODULE]
    own = {n: weakref.ref(v) for n, v in vars(module).items() if type(v) is types.FunctionType or isinstance(v, type)}
    known = {name: found for name, found in own.items() if getattr(found(), "__module__", "") == MODULE}
    code = weakref.ref(module.program.__code__)
    del module, function
    for _ in range(3):  # what tensors hold is found when they are gone
        gc.collect()
    return [*(name for name, found in known.items() if found() is not None), *(["code"] if code() is not None else [])]


@pytest.mark.parametrize("name", PROGRAMS)
def test_classes_end_with_their_module(name):
    assert left(PROGRAMS[name], True) == left(PROGRAMS[name], False) == []
