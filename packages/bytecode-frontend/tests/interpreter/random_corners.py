"""Random programs about what a capture does not see by itself, as text: when objects die, containers that change while they are walked,
caches, warnings, class statements, groups of exceptions, tracebacks, patterns, identity. ``program(Random)`` gives one function of a
tensor ``x``, which tells in ``LOG`` what it does; ``B`` breaks the graph at random places."""

from __future__ import annotations

from random import Random

import told

HEAD = """
from collections.abc import Mapping, Sequence
class Plain:
    def __init__(self, n=0): self.n = n
    def __repr__(self): return f"Plain({self.n})"
class Mortal(Plain):
    def __del__(self): LOG.append(("dead", self.n))
class Holder(Plain):
    held = None
class Counted:
    def __init__(self, n): self.n = n
    def __hash__(self): LOG.append(("hash", self.n)); return hash(self.n)
    def __eq__(self, other): LOG.append(("eq", self.n)); return isinstance(other, Counted) and self.n == other.n
class Both(Mapping, Sequence):
    def __getitem__(self, key): return [4, 5][key]
    def __len__(self): return 2
    def __iter__(self): return iter([0, 1])
class Meta(type):
    @classmethod
    def __prepare__(meta, name, bases, **kw): LOG.append(("prepare", name)); return {"given": 1}
    def __new__(meta, name, bases, names, **kw): LOG.append(sorted(k for k in names if k[0] != "_")); return super().__new__(meta, name, bases, names)
    def __call__(cls, *args): LOG.append(("call", cls.__name__)); return super().__call__(*args)
class Small(type):
    def __init__(cls, name, bases, names, **kw): LOG.append((name, sorted(kw))); super().__init__(name, bases, names)
    def __new__(meta, name, bases, names, **kw): return super().__new__(meta, name, bases, names)
class Hooked:
    def __init_subclass__(cls, **kw): LOG.append(("sub", cls.__name__, sorted(kw)))
class Named:
    def __set_name__(self, owner, name): LOG.append(("named", owner.__name__, name))
    def __get__(self, instance, owner): return 7 if instance is None else 8
class Group(ExceptionGroup):
    def derive(self, excs): return Group(self.message, excs)
class Cached:
    def __init__(self, n): self.n = n
    @functools.cached_property
    def once(self): LOG.append("once"); return self.n * 2
    @functools.lru_cache(maxsize=2)
    def method(self, k): LOG.append(("method", k)); return self.n + k
@functools.lru_cache(maxsize=3)
def told_of(n): LOG.append(("ran", n)); return n * 2
@functools.lru_cache(maxsize=None)
def pure(n): return (n * 3, n) if n % 2 else n - 1
@functools.cache
def deep(n): return 1 if n < 2 else deep(n - 1) + 1
@disabled
def native(kind, n): return kind(n)
def make(kind, n): return kind(n)
@disabled
def raising(n): raise (KeyError, ValueError, TypeError)[n % 3](n)
def deeper(n):
    y = n + 1
    raising(n)
    return y
def walking(n):
    try:
        for i in range(n):
            yield i
    finally:
        LOG.append(("walked", n))
@contextlib.contextmanager
def block(n):
    LOG.append(("in", n))
    try:
        yield Plain(n)
    except KeyError as e:
        LOG.append(("caught", repr(e)))
    finally:
        LOG.append(("out", n))
def said(e):
    return type(e).__name__, str(e), getattr(e, "__notes__", None), type(e.__cause__).__name__, type(e.__context__).__name__, e.__suppress_context__
def kept(value):
    return type(value).__name__ if isinstance(value, (torch.Tensor, BaseException)) else repr(value)
GLOBAL = []
TABLE = {0: 1, 1: 2}
ITEMS = {1, 2, 3}
def program(x):
    o = p = q = None
    w = lambda: None
    h = Holder(9)
    l, d, s, t = [1, 2, 3], {0: 1, 1: 2, 2: 3}, {1, 2, 3}, (1, 2)
    it, n, text, e = iter(l), 3, "ab", None
    GLOBAL.clear(); TABLE.clear(); TABLE.update({0: 1, 1: 2}); ITEMS.clear(); ITEMS.update((1, 2, 3))
    told_of.cache_clear(); Cached.method.cache_clear()
"""  # noqa: E501

FOOT = """
    LOG.append((kept(o), kept(p), kept(q), w() is None, l, sorted(d, key=str), len(s), n, text))
    return x
"""
#: {o}: a variable of an object, {n}: a small number, {i}: a number, {c}: a class of objects, {k}: a condition, {z}: a container
SIMPLE = [
    "x = B(x)", "x = B(x)", "B(x)", "x = x * 2", "n = n + {n}", "LOG.append({i})", "LOG.append(len(LOG))",
    "{o} = {c}({n})", "{o} = make({c}, {n})", "{o} = native({c}, {n})", "{o} = None", "{o} = {o2}", "del {o}; {o} = {n}", "h.held = {o}", "h.held = None", "{o} = h.held",
    "l.append({o})", "GLOBAL.append({o})", "GLOBAL.clear()", "l.clear()", ("w = weakref.ref({o}) if isinstance({o}, Plain) "
        "else w"), "LOG.append(w() is {o})", "LOG.append(w() is None)",
    "w = weakref.ref({o}, lambda r: LOG.append('gone')) if isinstance({o}, Plain) else w", "{o} = Plain(0); {o}.me = {o}", "gc.collect()", "LOG.append(kept({o}))", "{o} = [{o}]",
    "{c}({n})", "native({c}, {n})", "LOG.append(make({c}, {n}).n)", "LOG.append(native({c}, {n}).n)", "{o} = w()", "f = weakref.finalize(h, LOG.append, 'final'); LOG.append(f.alive); f.detach()",
    "{o} = (lambda a: a)({o2})", "{o} = [{c}(1), {c}(2)].pop()", "{o} = {{1: {c}({n})}}", ("wd = weakref.WeakValueDictionary(); wd[1] = h; "
        "LOG.append(len(wd))"), "ws = weakref.WeakSet([h]); LOG.append(len(ws))",
    "g = walking({n}); LOG.append(next(g, None))", "g = walking(2); next(g); B(x); del g", ("g = walking({n}); next(g, 0); "
        "g.close()"), "LOG.append(list(walking({n})))",
    "l.append({n})", "l.pop() if l else 0", "l[:] = [{n}, 2]", "d[{n}] = {i}", "d.pop({n}, None)", "d.clear()", "d[len(d)] = 1", "s.add({n})", "s.discard({n})", "s.clear()", "d.update({{5: 1}})", "s |= {{4}}",
    "TABLE[{n}] = 1", "TABLE.pop({n}, 0)", "ITEMS.add({n})", "ITEMS.discard({n})", "it = iter({z})", "it = reversed(l)", "it = iter(d.items())", "it = reversed(d)", "LOG.append(next(it, 'end'))", "LOG.append(next(it))",
    "it = zip(l, d)", "it = enumerate(s)", "it = map(str, l)", "it = itertools.chain(l, s)", "it = itertools.pairwise(l)", "it, it2 = itertools.tee(it)", "it = itertools.islice(l, {n}, None)", "it = filter(None, d)",
    "it = itertools.accumulate(l, lambda a, b: b)", "it = itertools.zip_longest(l, t)", ("c = itertools.cycle(t); B(x); "
        "LOG.append([next(c), next(c), next(c)])"), "LOG.append(list(itertools.islice(it, 3)))", ("dq = collections.deque(l); it = iter(dq); "
            "dq.append(1)"),
    "LOG.append(told_of({n}))", "told_of.cache_clear()", "LOG.append(tuple(told_of.cache_info()))", "LOG.append(pure({n}))", "LOG.append(deep({n}))", "n = pure(2)", "LOG.append(pure({n}) is pure({n}))", "LOG.append(told_of(True))",
    "k = Cached({n}); LOG.append(k.once + k.once); LOG.append(k.method(1) + k.method(1)); del k", "LOG.append(told_of.__wrapped__({n}))", "LOG.append({{Counted({n}): 1}}.get(Counted({n})))", "LOG.append(Counted({n}) in [Counted({n})])",
    "warnings.warn('w{n}')", "warnings.warn('w{n}', DeprecationWarning)", "class A{n}(metaclass=Meta): a = {n}", ("class A(metaclass=Small, "
        "k=1):\n    def f(self): return __class__"), "class A(Hooked, k={n}): b = 1",
    "class A:\n    a = Named()\n    n = {n}\nLOG.append((A.a, A().a, A.n))", ("class A:\n    locals()['z'] = "
        "{n}\nLOG.append(A.z)"), "class A(Plain):\n    def __repr__(self): return super().__repr__() + '!'\n{o} = A({n})",
    "A = type('A', (Plain,), {{'k': {n}}}); LOG.append((A.k, A.__mro__[1] is Plain))", "class A(Meta('M', (), {{}})): a = 1", "@dataclasses.dataclass\nclass A:\n    a: int = {n}\nLOG.append(repr(A()))",
    "raise KeyError({n})", "raise ValueError({n}) from KeyError(1)", ("raise ExceptionGroup('g', [ValueError({n}), "
        "KeyError(1)])"), "raise Group('g', [TypeError(1), ExceptionGroup('i', [KeyError({n})])])", "deeper({n})", "raising({n})",
    "ExceptionGroup('g', [])", "ExceptionGroup({n}, [1])", "ExceptionGroup('g', [{n}])", ("LOG.append(type(BaseExceptionGroup('g', "
        "[KeyError()])).__name__)"), "LOG.append([].pop())", "LOG.append(t[{n}])", "1 // {n}", "slice()", "int('x')",
    "LOG.append(int('257') is int('257'))", "text = ''.join(['a', 'b']); LOG.append(text is 'ab')", "LOG.append(t is (1, 2))", "u = t; B(x); LOG.append(u is t)", "LOG.append(text is str(text))", "LOG.append((1, 2) is tuple((1, 2)))",
    "i = n * 1000; j = i; x = B(x); LOG.append(i is j)", "f = 1.5 * n; g = f; B(x); LOG.append(f is g)", ("LOG.append(l is "
        "list(l))"), "a = b = [n]; x = B(x); LOG.append(a is b)", "LOG.append(d.keys() & {{0, 1}})", ("LOG.append(type(frozenset([1]) & "
            "d.keys()).__name__)"),
    "LOG.append(sorted(d.keys() - {{1}}))", "LOG.append(bool(weakref.proxy(h)))", "LOG.append(h.n)", ("l.extend(x for x in "
        "range({n}))"), "LOG.append(sum(l, 0) if all(type(v) is int for v in l) else 0)", "del l[:1]", "l.insert(0, {n})",
    "match {m}:\n    case [a, b]: LOG.append(('seq', kept(a)))\n    case {{0: a}}: LOG.append(('map', kept(a)))\n    case Plain(n=a): LOG.append(('obj', a))\n    case int() | None: LOG.append('int')\n    case _: LOG.append('other')",
]  # fmt: skip
BLOCKS = [
    "try:", "try:", "try:", "for k in {z}:", "for k in {z}:", "for k in list({z}):", "for k in range({n}):", "for k in walking({n}):", "if {k}:", "with block({n}) as {o}:", "with contextlib.suppress(KeyError):",
    "with warnings.catch_warnings():\n    warnings.simplefilter('error')", "with warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('always')", "def inner(a=1):", "with torch.no_grad():", "for k in iter(lambda: n % 3, 0):\n    n += 1",
]  # fmt: skip
HANDLERS = [
    "except Exception as e:\n    LOG.append(said(e))", "except Exception as e:\n    LOG.append(said(e)); LOG.append(places(e))", "except Exception as e:\n    {b}LOG.append(said(e))", "except KeyError as e:\n    LOG.append(said(e))",
    "except (KeyError, ValueError) as e:\n    e.add_note('n{n}'); {b}raise", "except* ValueError as e:\n    LOG.append(said(e))", "except* KeyError as e:\n    {b}LOG.append((said(e), places(e)))\n    raise", "except* (TypeError, KeyError) as e:\n    raise ValueError({n}) from e",
    "finally:\n    LOG.append('finally')", "except ValueError:\n    LOG.append('v')\nelse:\n    LOG.append('else')\nfinally:\n    {b}LOG.append('f')",
]  # fmt: skip
ENDED = {"with warnings.catch_warnings(record=True)": "LOG.append([str(m.message) for m in seen])", "def inner": "LOG.append(inner())"}
CHOICES = {
    "o": ["o", "p", "q"], "o2": ["o", "p", "q"], "c": ["Plain", "Plain", "Mortal", "Holder"], "z": ["l", "d", "s", "d.items()", "d.values()", "TABLE", "ITEMS", "t", "reversed(l)", "enumerate(l)", "it", "collections.deque(l)"],
    "k": ["n % 2", "l", "o", "w() is None", "LOG", "x.sum() > 3", "it", "d"], "m": ["l", "d", "o", "n", "Both()", "t", "text", "{0: n}"], "b": ["", "", "B(x); "],
}  # fmt: skip


def filled(random: Random, row: str) -> str:
    chosen = {name: random.choice(options) for name, options in CHOICES.items()}
    return row.format(**chosen, n=random.randrange(4), i=random.choice(["n", "len(l)", "len(d)", str(random.randrange(9))]))


def indented(text: str, by: str = "    ") -> list[str]:
    return [by + line for line in text.split("\n")]


def statements(random: Random, count: int, depth: int = 0) -> list[str]:
    lines: list[str] = []
    for _ in range(count):
        if depth < 3 and random.random() < 0.28:
            lines += compound(random, depth)
        else:
            lines += filled(random, random.choice(SIMPLE)).split("\n")
    return lines


def compound(random: Random, depth: int) -> list[str]:
    opening = random.choice(BLOCKS)
    lines = filled(random, opening).split("\n")
    body = statements(random, random.randrange(1, 5), depth + 1)
    if opening == "def inner(a=1):":
        lines += indented("nonlocal_ = x")
        body = [
            "o = p = q = None",
            "w = lambda: None",
            "h = Holder(3)",
            "l, d, s, t, it, n, text, y = [1], {0: 1}, {1}, (1, 2), iter([3]), 2, 'ab', x",
            *body,
        ]
        body = [line for line in body]
        body.append("return n")
        lines = [lines[0], *indented("\n".join(body))]
        lines = [line.replace("x = B(x)", "y = B(x)").replace("x = x * 2", "y = x * 2") for line in lines]
    else:
        if opening.startswith("for"):
            lines += ["    h.n += 1", "    if h.n > 40: raise OverflowError"]
        lines += indented("\n".join(body))
    if opening == "try:":
        lines += filled(random, random.choice(HANDLERS)).split("\n")
    for start, after in ENDED.items():
        if opening.startswith(start) and after:
            lines.append(after)
    return lines


def program(random: Random) -> str:
    body = statements(random, random.randrange(3, 12))
    if random.random() < 0.5:
        body = ["try:", *indented("\n".join(body)), "except Exception as e:", "    LOG.append(said(e))", "    LOG.append(places(e))"]
    return HEAD + "\n".join(indented("\n".join(body))) + FOOT


def compiles(text: str) -> bool:
    try:
        compile(text, "<programs>", "exec")
    except SyntaxError:
        return False
    return True


def difference(text: str, times: int = 2) -> str | None:
    """What is not the same, None when everything is."""
    program = told.programs("import dataclasses\n" + text)["program"]
    try:
        told.differs(program, times, alone=True)
    except AssertionError as error:
        return str(error)
    return None


def shrunk(text: str) -> str:
    """The program with all lines of its body removed that the difference does not need."""
    begins = text.index("def program(x):")
    head, lines = text[:begins], text[begins:].split("\n")
    width = max(1, len(lines) // 2)
    while width:
        i = 1
        while i < len(lines):
            fewer = [*lines[:i], *lines[i + width :]]
            candidate = head + "\n".join(fewer)
            keeps = compiles(candidate) and fails(candidate)
            lines, i = (fewer, i) if keeps else (lines, i + width)
        width //= 2
    return "\n".join(lines)


def fails(text: str) -> bool:
    try:
        return difference(text) is not None
    except Exception:
        return False
