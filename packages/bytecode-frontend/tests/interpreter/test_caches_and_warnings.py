"""Caches, warnings, copies of iterators, weak proxies: what the program can see of them, captured and plain."""

from __future__ import annotations

import warnings

import pytest
import told
import torch

from opmill_bytecode_frontend import capture

PROGRAMS = told.programs("""
@functools.lru_cache
def fib(n):
    LOG.append(n); return n
def lc(x):
    fib.cache_clear(); fib(1); fib(1); fib(2); i=fib.cache_info(); return x+i.hits, tuple(i)
def lc_b(x):
    fib.cache_clear(); fib(1); y=B(x); fib(1); fib(2); i=fib.cache_info(); return y+i.hits, tuple(i)
class K:
    def __init__(s,n): s.n=n
    def __hash__(s): LOG.append(("hash",s.n)); return hash(s.n)
    def __eq__(s,o): LOG.append(("eq",s.n)); return s.n==o.n
@functools.lru_cache(maxsize=2)
def body(k): LOG.append(("body",k.n)); return k.n*2
def lc_k(x):
    body.cache_clear(); a=K(1); n=body(a)+body(a)+body(K(1)); return x+n, tuple(body.cache_info())
def lc_local(x):
    @functools.lru_cache
    def g(n): LOG.append(n); return n*2
    n=g(1)+g(1)+g(2); return x+n, tuple(g.cache_info())
class M:
    @functools.lru_cache
    def f(s,n): LOG.append(("f",n)); return n
    @functools.cached_property
    def p(s): LOG.append("p"); return 3
def lc_m(x):
    m=M(); n=m.f(1)+m.f(1)+m.p+m.p; return x+n
def warnerr(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try: warnings.warn("x")
        except UserWarning as e: return x+1, str(e)
    return x
def warnrec(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        warnings.warn("x"); n=len(w); warnings.warn("y", DeprecationWarning)
    return x+n, [str(i.message) for i in w], [i.category.__name__ for i in w]
def tee2(x):
    a,b=itertools.tee([1,2,3]); next(a); c,d=itertools.tee(a); return x, list(c),list(d),list(b), c is a
def tee3(x):
    a,b=itertools.tee([1,2,3]); next(a); c,=itertools.tee(a,1); return x, list(c), list(b), type(c) is type(a), c is a
class E0:
    def __len__(s): return 0
EE = E0()
def bp(x):
    o=E0(); p=weakref.proxy(o); return x, bool(p), len(p)
def bp2(x):
    p=weakref.proxy(EE); return x, bool(p), len(p), not p
def ident(x):
    a=int("257") is int("257"); y=B(x); b=int("257") is int("257"); return y,a,b
def ident2(x):
    a=int("257"); y=B(x); b=int("257"); return y,a is b
def error_behind_a_break(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y=B(x)
        try: warnings.warn("x", DeprecationWarning)
        except DeprecationWarning as e: return y+1, str(e)
    return x
def error_by_message(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="bad")
        try: warnings.warn("good"); warnings.warn("bad one"); LOG.append(1)
        except UserWarning as e: return x+1, str(e)
    return x
def recorded_by_a_caller(x):
    def inner():
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always"); helper(); return len(w)
    def helper(): warnings.warn("h", stacklevel=2)
    return x+inner()
def once(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("once")
        for i in range(3): warnings.warn("same")
        return x, len(w), [i.lineno-once.__code__.co_firstlineno for i in w]
def ignored(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("ignore"); warnings.warn("same"); y=B(x); warnings.simplefilter("always"); warnings.warn("z")
        return y, [str(i.message) for i in w]
def action(x):
    try:
        with warnings.catch_warnings(action="error") if sys.version_info>=(3,11) else warnings.catch_warnings(): warnings.warn("a")
    except UserWarning as e: return x+1, str(e)
    return x
def shown(x):
    warnings.warn("shown"); return x+1

COUNT = [0]
@functools.lru_cache(maxsize=None)
def counted(n):
    COUNT[0] += 1
    return n + COUNT[0]
def not_pure(x):
    counted.cache_clear()
    COUNT[0] = 0
    return x + counted(3), counted(3), counted(4), COUNT[0], tuple(counted.cache_info())
@functools.cache
def recursive(n):
    return n if n < 2 else recursive(n - 1) + recursive(n - 2)
def recursion(x):
    recursive.cache_clear()
    a = recursive(20)
    return x + a, tuple(recursive.cache_info()), recursive(21), tuple(recursive.cache_info())
@functools.lru_cache
def masked(n):
    LOG.append("made")
    return torch.ones(n)
def a_tensor_made_once(x):
    masked.cache_clear()
    return x + masked(2), masked(2) is masked(2)
@functools.lru_cache
def of_a_tensor(t):
    LOG.append("ran")
    return t.shape[0]
def a_tensor_as_key(x):
    of_a_tensor.cache_clear()
    n = of_a_tensor(x) + of_a_tensor(x)
    of_a_tensor.cache_clear()
    return x + n
SETTING = [2]
@functools.lru_cache
def of_setting(n):
    return n * SETTING[0]
def stale(x):
    of_setting.cache_clear()
    SETTING[0] = 2
    a = of_setting(3)
    SETTING[0] = 5
    return x, a, of_setting(3)
""")


@pytest.mark.filterwarnings("ignore:FE090", "ignore::UserWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    told.differs(PROGRAMS[name])


@pytest.mark.parametrize("action", ["default", "error", "ignore"])
def test_filters_that_python_begins_with(action, caplog):
    """Their modules are plain texts, and not patterns."""
    caplog.set_level("DEBUG", "opmill.internal")

    def program(x):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return x + 1

    def outcome(f):
        with warnings.catch_warnings(record=True) as seen:
            warnings.filters[:0] = [("ignore", None, DeprecationWarning, "__main__", 0), (action, None, DeprecationWarning, __name__, 0)]
            warnings._filters_mutated() if hasattr(warnings, "_filters_mutated") else warnings._filters_mutated_lock_held()
            try:
                result = f(torch.ones(2)).tolist()
            except DeprecationWarning as warning:
                result = str(warning)
        return result, [str(each.message) for each in seen]

    compiled = capture(program, "eager")
    assert outcome(compiled) == outcome(program)
    assert not [each for each in caplog.records if each.exc_info and isinstance(each.exc_info[1], AttributeError)]


LIBRARY = """
import functools

@functools.lru_cache(1024)
def parts(shape, given, k=2):
    if given is not None and shape[1] % k:
        raise ValueError(f"{shape[1]} is not divisible by {k}")
    return tuple(shape[:1]) + (k, shape[1] // k), given

@functools.lru_cache(1024)
def product(sizes):
    n = 1
    for each in sizes:
        n = n * each
    return n
"""


@pytest.mark.parametrize("name", ["nested", "flat", "refused", "unhashable"])
def test_sizes_in_the_key_of_a_cached_function_of_a_library_are_not_assumed(name):
    """As einops keeps by the shapes of tensors what patterns mean."""
    library: dict = {"__name__": "some_library"}
    exec(compile(LIBRARY, "/lib/site-packages/some_library.py", "exec"), library)
    parts, product = library["parts"], library["product"]
    programs = {
        "nested": lambda x: x.reshape(parts(tuple(x.shape), (1, (x.shape[0], None)))[0]),
        "flat": lambda x: x * product(x.shape) + product((x.shape[0], 3)),
        "refused": lambda x: x.reshape(parts(x.shape, (), k=4)[0]),
        "unhashable": lambda x: product([x.shape[0], x.shape[1]]),
    }
    made: list = []
    compiled = capture(programs[name], "eager", on_translation=made.append)

    def outcome(f, x):
        try:
            return f(x).tolist()
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    for n in (4, 8, 12, 6, 16, 20):
        x = torch.arange(2.0 * n).reshape(2, n)
        assert outcome(compiled, x) == outcome(programs[name], x)
    assert len(made) <= 2 or name == "refused"  # there the graph ends where it raises
