"""What random Python programs are made of: the head of each program, expressions by kind, statements, exceptions.

``<int>`` stands for an expression of that kind, ``<v:list>`` for a variable. The first three expressions of a kind hold no others."""

from __future__ import annotations

IMPORTS = """\
import bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, itertools, math, operator, re, string, weakref
import torch

LOG = []
STATE = [1]
WATCHED = []
SHARED = {}
COUNT = 0
TEXT = "t"


def bump(k):
    global COUNT
    COUNT = (COUNT + k) % 50
    return COUNT


def retext(k):
    global TEXT
    TEXT = (TEXT + str(k))[-6:]


def counted(k):
    j = 0
    while j < abs(k) % 4:
        sent = yield j
        j += 1 if sent is None else 2
    return j


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        LOG.append(function.__name__)
        return function(*args, **kwargs)

    return wrapper


class Entered:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(("exit", self.name, kind and kind.__name__))
        return self.swallow

    def close(self):
        LOG.append(("close", self.name))


@contextlib.contextmanager
def entered(k):
    LOG.append(("in", k))
    try:
        yield k
    except ValueError as error:
        LOG.append(("handled", error.args))
    finally:
        LOG.append("out")


class Checked:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, holder, owner):
        if holder is None:
            return self
        return vars(holder).get(self.name, 7)

    def __set__(self, holder, value):
        if value == 3:
            raise ValueError("not 3")
        vars(holder)[self.name] = value


class Custom(ValueError):
    def __init__(self, code, text="custom"):
        super().__init__(code, text)
        self.code = code


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: list = dataclasses.field(default_factory=list, compare=False)


Pair = collections.namedtuple("Pair", "left right")


class Stack(list):
    def push(self, k):
        self.append(k)
        return self


"""
EXPRESSIONS: dict[str, list[str]] = {
    "int": [
        "1", "2", "7",
        "0", "-3", "5", "(<int> + <int>)", "(<int> - <int>)", "(<int> * <int> % 101)", "(<int> // <int>)", "(<int> % 7)",
        "len(<list>)", "len(<str>)", "sum(<list>)", "max(<list>)", "min(<list>, default=4)", "<list>[<int>]", "<list>[-1]", "<v:dict>['a']",
        "<v:dict>.get(<str>, <int>)", "(<int> if <bool> else <int>)", "abs(<int>)", "(<int> & 15)", "(<int> | <int>)", "(<int> ^ 3)", "int(<float>)",
        "int(<bool>)", "<list>.index(<int>)", "<list>.count(<int>)", "<str>.find('b')", "ord(<str>[0])", "hash(<int>)", "round(<float>)",
        "divmod(<int>, 3)[1]", "functools.reduce(lambda p, q: (p * 3 + q) % 97, <list>, <int>)", "next(iter(<list>), <int>)", "bump(<int>)", "x.shape[0]",
        "sum(v for v in <list> if v > <int>)", "len({*<list>})", "COUNT", "(<bool> and <int> or 9)", "int('1' + str(abs(<int>)))", "(lambda *z, k=2: len(z) + k)(*<list>)",
        "Point(<int>).x", "Pair(<int>, <int>).left", "Pair(<int>, 2)._replace(right=<int>)[1]", "Colour.RED.value", "bisect.bisect(sorted(<list>), <int>)", "math.gcd(<int>, 12)",
        "operator.itemgetter(0)(<list>)", "(~<int>)", "(<int> << 1 & 255)", "int.bit_length(<int>)", "copy.copy(<list>)[0]", "collections.Counter(<str>)['b']",
        "getattr(<list>, '__len__')()", "(-<int>)", "len(STATE) % 9", "<set>.__len__()", "len(list(itertools.combinations(<list>[:4], 2)))", "int(<str>)",
        "[v for v in range(3)][<int>]", "dict(a=<int>, b=2)['a']", "collections.defaultdict(int, a=<int>)['zz']", "(<int>, <int>)[<bool>]", "Stack(<list>).push(<int>)[-1]",
    ],
    "bool": [
        "True", "False", "True",
        "(<int> < <int>)", "(<int> == <int>)", "(<int> <= <int> < <int>)", "(not <bool>)", "(<bool> and <bool>)", "(<bool> or <bool>)", "(<int> in <list>)", "(<str> in <dict>)",
        "(<str> not in <str>)", "isinstance(<int>, (int, str))", "(<list> is <list>)", "bool(<list>)", "any(v > 1 for v in <list>)", "all(<list>)", "(<list> == <list>)",
        "(<dict> == <dict>)", "(<set> <= <set>)", "<str>.isdigit()", "<str>.startswith(<str>)", "(<tuple> < <tuple>)", "callable(<str>)", "hasattr(<list>, 'append')",
        "(<int> > 2)", "(<int> != 3)", "(<float> > <float>)", "issubclass(Custom, ValueError)", "(Colour(1) is Colour.RED)", "(Point(<int>) == Point(<int>))", "(Point(<int>) < Point(<int>))",
        "bool(x.sum() > <int>)", "(x.shape[0] > 3)", "set(<list>).isdisjoint(<set>)", "bool(re.match('[a-c]+', <str>))", "(<int> is None)", "(n > 2)", "(<int> in iter(<list>))", "(<int> in map(abs, <list>))", "(<str> in reversed(<str>))", "(<int> in counted(<int>))",
    ],
    "float": [
        "0.5", "2.0", "-1.25",
        "float(<int>)", "(<int> / <int>)", "(<float> + <float>)", "(<float> * 0.5)", "round(<float>, 1)", "math.floor(<float>) * 1.0", "abs(<float>)", "max(<float>, <float>)", "float('inf')",
        "math.sqrt(<int>)", "-0.0", "(<float> % 3)", "x.sum().item()", "float(<str>)", "sum([<float>, <float>])", "math.fsum(<list>)",
    ],
    "str": [
        "'ab'", "'cd'", "'x y'",
        "str(<int>)", "(<str> + <str>)[:8]", "<str>.upper()", "<str>[::-1]", "<str>[1:]", "f\"{<v:int>}-{<v:int>:03d}\"", "f\"{<v:list>!r:.9}\"", "'%d %s' % (<int>, <list>[:2])", "','.join(map(str, <list>))",
        "<str>.replace('a', 'b')", "<str>.title()", "<str>.strip()", "<str>.center(6, '*')", "'{}:{k}'.format(<int>, k=<str>)", "repr(<list>)[:9]", "chr(97 + <int> % 26)", "<str>.join(['p', 'q'])",
        "''.join(sorted(<str>))", "(<str> * 2)[:6]", "<str>.partition('b')[2]", "f\"{<v:float>:.2f}\"", "f\"{<v:str>!r:>6}\"", "format(<int>, 'x')", "type(<int>).__name__", "str(<float>)", "repr(<tuple>)[:12]",
        "string.ascii_lowercase[<int>]", "'abc'[<int>]", "re.sub('[ab]', '-', <str>)", "next(iter(<dict>))", "min(<dict>)", "TEXT", "<str>.encode().hex()", "'a' if <bool> else <str>", "str(Colour.BLUE)",
        "f\"{<v:int>=}\"", "repr(Point(<int>))", "str(Pair(<int>, <str>))", "<str>.split('b')[0]", "<str>.zfill(4)", "<str>.swapcase()", "<str>.casefold()", "str(<bool>)", "max(<str>, <str>)", "'-'.join(<dict>)",
        "word.translate({97: 'z'})", "string.Template('$a!').substitute(a=<int>)", "program.__name__",
    ],
    "list": [
        "[1, 2]", "[3]", "[]",
        "[<int>, <int>]", "[<int>, *<list>][:7]", "list(range(<int>))[:5]", "[v + 1 for v in <list>]", "[v for v in <list> if v % 2]", "<list>[::-1]", "sorted(<list>)", "<list>[1:]", "list(<set>)",
        "list(<dict>.values())", "list(map(abs, <list>))", "(<list> + <list>)[:8]", "list(reversed(<list>))", "<list>.copy()", "sorted(<list>, key=lambda v: (v % 3, -v))", "([<int>] * 2)",
        "[p * q for p in <list>[:2] for q in <list>[:2]]", "list(filter(None, <list>))", "list(itertools.accumulate(<list>[:4]))", "[q for _, q in zip(<str>, <list>)]", "[*{*<list>}]",
        "list(counted(<int>))", "list(itertools.takewhile(lambda v: v < 4, <list>))", "([<int>] + [9])", "heapq.nsmallest(2, <list>)", "list(collections.deque(<list>, maxlen=3))",
        "[len(v) for v in <dict>]", "copy.deepcopy(<list>)", "list(itertools.starmap(pow, [(2, 3), (<int>, 2)]))", "items", "[(lambda: v)() for v in <list>]", "STATE[-3:]", "Point(1, <list>).y",
        "[v for pair in zip(<list>, <list>) for v in pair]", "list(dict.fromkeys(<list>))", "functools.reduce(operator.add, [<list>, <list>])[:6]", "list(<tuple>)", "[p - q for p, q in enumerate(<list>, 2)]",
    ],
    "dict": [
        "{'a': 1}", "{}", "{'b': 2, 'a': 3}",
        "{<str>: <int>}", "{**<dict>, <str>: <int>}", "{k: v + 1 for k, v in <dict>.items()}", "dict(zip(<str>, <list>))", "dict(<dict>, c=<int>)", "(<dict> | {'d': <int>})", "{c: k for k, c in enumerate(<str>)}",
        "dict(sorted(<dict>.items()))", "<dict>.copy()", "dict.fromkeys(<str>, <int>)", "dict(collections.Counter(<str>))", "mapping", "vars(Point(<int>)).copy() and {'p': <int>}",
        "dict(collections.OrderedDict(<dict>))", "dict(collections.ChainMap({'x': <int>}, <dict>))", "{str(v): v for v in <set>}", "Pair(<int>, <int>)._asdict()", "dict(a=<int>, **{'z': 2})",
    ],
    "set": [
        "{1, 2}", "set()", "{3}",
        "{<int>, <int>}", "set(<list>)", "(<set> | <set>)", "(<set> & <set>)", "(<set> - {<int>})", "{v % 4 for v in <list>}", "(<set> ^ <set>)", "set(range(<int> % 5))", "<set>.union(<list>)", "<set>.copy()",
        "{*<list>, <int>}", "set(map(len, <dict>))", "<set>.intersection(<list>, <set>)",
    ],
    "tuple": [
        "(1, 2)", "()", "(3, 'a')",
        "(<int>, <str>)", "tuple(<list>)", "(*<list>, <int>)", "divmod(<int>, 4)", "<str>.partition('b')", "tuple(sorted(<set>))", "tuple(v for v in <list>)", "(<tuple> + (<int>,))[:5]", "Pair(<int>, <list>)",
        "tuple(zip(<list>, <list>))[:2]", "next(iter(<dict>.items()), (1, 2))", "tuple(x.shape)", "(<list>, <dict>)", "dataclasses.astuple(Point(<int>, <list>))",
    ],
    "tensor": [
        "x", "x + 1", "torch.ones(2)",
        "(x * <int>)", "(<tensor> + 1.5)", "x.relu()", "(<tensor> * 2)", "x[:2]", "x.sum()", "torch.stack([x, x * <int>])", "torch.where(x > <int>, x, -x)", "x.clone().add_(<int>)", "torch.tensor(<list>)",
        "torch.full((2,), <float>)", "torch.cat([x, <tensor>])",
    ],
}  # fmt: skip
STATEMENTS = [
    "LOG.append(<int>)", "LOG.append(<str>)", "LOG.append(<list>)", "LOG.append(<v:list>)", "LOG.append(<v:dict>)", "LOG.append((<int>, <bool>))", "LOG.append(<tuple>)", "LOG.append(<float>)", "print(<int>, <str>)",
    "print(<v:list>, end='')", "LOG.append(<list> is <list>)",
    "<v:list>.append(<int>)", "<v:list>.insert(<int>, <int>)", "LOG.append(<v:list>.pop())", "LOG.append(<v:list>.pop(<int>))", "<v:list>.remove(<int>)", "<v:list>.sort()", "<v:list>.sort(key=lambda v: -v)",
    "<v:list>.reverse()", "<v:list>.extend(<list>[:3])", "<v:list>[0:1] = <list>[:2]", "del items[:1]", "items[0] = <int>", "items[-1] += <int>", "items += [<int>]", "<v:list>.clear()",
    "mapping[<str>] = <int>", "<v:dict>.update(<dict>)", "<v:dict>.setdefault(<str>, <int>)", "LOG.append(<v:dict>.pop(<str>, None))", "LOG.append(<v:dict>.popitem())", "del mapping['a']", "<v:dict>.pop(<str>)",
    "mapping['a'] += <int>", "mapping |= <dict>", "LOG.append(list(<v:dict>.items()))", "LOG.append(<v:dict>.keys() & {'a', 'c'})",
    "<v:set>.add(<int>)", "<v:set>.discard(<int>)", "<v:set>.remove(<int>)", "<v:set>.update(<list>)", "LOG.append(<v:set>.pop())", "LOG.append(sorted(<v:set>))", "n = <int>", "n += <int>", "word += <str>[:2]",
    "x = x + <int>", "x.add_(<int>)", "x[0] = <int>", "x = <tensor>", "LOG.append(x.sum())", "LOG.append(x)", "STATE.append(<int>)", "SHARED[<int>] = <list>", "SHARED.clear()", "del STATE[3:]",
    "heapq.heappush(STATE, <int>)", "assert <bool>, <str>", "assert <int> > -50", "Bmut(<v:list>)", "Bmut(<v:dict>)", "LOG.append(Bcall(lambda: <int>))", "LOG.append(Bcall(lambda v: v + <int>, <int>))", "Braise(<int>)",
    "LOG.append(sorted(<list>, key=B))", "LOG.append([B(v) for v in <list>])", "LOG.append(eval('1 + 2'))", "LOG.append(copy.copy(<v:list>))", "LOG.append(sorted(<dict>.items(), key=lambda p: p[1]))",
    "for q in <v:list>: LOG.append(q)", "for q, r in sorted(<dict>.items()): LOG.append((r, q))", "LOG.append([*map(lambda p, q: p - q, <list>, <list>)])", "LOG.append(iter(<list>))", "LOG.append(zip(<list>, <str>))",
    "LOG.append((lambda it: (<int> in it, list(it)))(iter(<list>)))", "LOG.append((lambda it: (next(it, None), <int> in it, [*it]))(map(abs, <list>)))", "LOG.append((lambda a, b: (next(a, 0), [*b], [*a]))(*itertools.tee(<list>)))",
    "LOG.append((lambda v: (v is <v:list>, v == <v:list>))(<v:list>))", "LOG.append(<v:dict>.keys())", "LOG.append(<v:dict>.values())", "LOG.append((lambda v, d: (d.update(z=1), list(v)))(<v:dict>.items(), <v:dict>))",
    "LOG.append((lambda it: (next(it, 0), items.append(<int>), list(it)))(iter(items)))", "LOG.append(int(Colour.RED.value) in [c.value for c in Colour])", "LOG.append(min(<list>, key=B, default=<int>))",
    "LOG.append(weakref.ref(Custom)() is Custom)", "LOG.append(OSError(2, <str>, 'f').filename)", "LOG.append(ImportError(<str>, name=<str>).name)", "LOG.append(functools.partial(sorted, <list>).args)",
    "LOG.append(functools.partial(sorted, key=abs).keywords)", "LOG.append(collections.ChainMap(mapping, <dict>).maps[0] is mapping)", "LOG.append((<list> or <str>, <int> and <bool>))", "LOG.append(<list>.sort(reverse=True))",
    "LOG.append(itertools.count(<int>))", "LOG.append(list(zip(*[iter(<list>)] * 2)))", "LOG.append(<str>.format_map(<dict>))", "LOG.append([k for k in <list> if (w := k % 3)])", "LOG.append(dict(zip(<list>, itertools.repeat(<int>))))",
    "LOG.append(list(itertools.groupby(<list>, lambda v: v % 2)).__len__())", "LOG.append(list(itertools.product(<list>[:2], <str>[:2])))", "LOG.append(max(<list>, key=lambda v: (v * 7) % 5))",
    "LOG.append((lambda p, /, *q, r=<int>, **s: (p, q, r, s))(<int>, *<list>, t=<str>))", "LOG.append((n, word))", "LOG.append(Point(<int>, <v:list>))", "LOG.append(Stack(<list>).push(<int>))",
    "LOG.append(collections.deque(<list>, maxlen=2))", "LOG.append(collections.Counter(<str>).most_common(1))", "LOG.append(dataclasses.replace(Point(<int>), x=<int>))", "LOG.append(Colour(<int>))",
    "LOG.append(vars(Entered(<str>)))", "LOG.append(locals().get('n'))", "LOG.append([q for q in (lambda: (yield <int>))()])", "LOG.append(functools.partial(max, <int>)(<int>))", "LOG.append(Custom(<int>))",
    "LOG.append((<int>).__add__(<int>))", "LOG.append(object() is object())", "LOG.append(type(<tuple>))", "LOG.append(sum(<list>, start=<int>))", "LOG.append(print)", "LOG.append(lambda: n)",
    "setattr(Entered, 'extra', <int>)", "LOG.append(getattr(Entered, 'extra', None))", "LOG.append(type('Made', (Stack,), {'v': <int>})(<list>))",
]  # fmt: skip
ERRORS = (
    "ValueError(<int>)", "KeyError(<str>)", "Custom(<int>)", "TypeError('t')", "RuntimeError", "StopIteration(<int>)", "IndexError(<int>, <str>)", "ExceptionGroup('g', [ValueError(<int>), KeyError(<str>)])",
    "ZeroDivisionError('z')", "AttributeError", "OSError(2, 'no')",
)  # fmt: skip
HANDLED = (
    "ValueError",
    "(KeyError, IndexError)",
    "Exception",
    "Exception",
    "LookupError",
    "Custom",
    "TypeError",
    "ArithmeticError",
    "(ValueError, TypeError)",
)
# Name of a special method, its lines.
SPECIAL: list[tuple[str, list[str]]] = [
    ("__eq__", ["def __eq__(self, other):", "    LOG.append('eq')", "    return isinstance(other, C0) and self.a == other.a", "__hash__ = object.__hash__"]),
    ("__hash__", ["def __hash__(self): return hash(('h', self.a))", "def __eq__(self, other): return self is other or getattr(other, 'a', None) == self.a"]),
    ("__lt__", ["def __lt__(self, other):", "    LOG.append(('lt', self.a))", "    return self.a < getattr(other, 'a', <int>)"]),
    ("__len__", ["def __len__(self): return abs(self.a) % 5"]),
    ("__bool__", ["def __bool__(self):", "    LOG.append('bool')", "    return self.a > 1"]),
    ("__iter__", ["def __iter__(self):", "    for each in self.b[:3]:", "        yield each", "    LOG.append(<int>)"]),
    ("__contains__", ["def __contains__(self, key): return key in self.b"]),
    ("__getitem__", ["def __getitem__(self, key):", "    if key == 5: raise KeyError(key)", "    return self.b[key]"]),
    ("__setitem__", ["def __setitem__(self, key, value): self.b[key] = value"]),
    ("__call__", ["def __call__(self, q=1):", "    self.a += q", "    return self.a % 50"]),
    ("__enter__", ["def __enter__(self):", "    LOG.append(('enter', self.a))", "    return self", "def __exit__(self, kind, value, trace):", "    LOG.append(('exit', kind and kind.__name__))", "    return self.a % 2 == 0"]),
    ("__add__", ["def __add__(self, other):", "    if not isinstance(other, int): return NotImplemented", "    return (self.a + other) % 100", "def __radd__(self, other): return (self.a - other) % 100"]),
    ("__iadd__", ["def __iadd__(self, other):", "    self.a += other", "    return self"]),
    ("__getattr__", ["def __getattr__(self, name):", "    if name.startswith('z'): return len(name)", "    raise AttributeError('no ' + name)"]),
    ("__repr__", ["def __repr__(self): return f'<C0 {self.a} {self.b!r}>'"]),
    ("__index__", ["def __index__(self): return abs(self.a) % 3"]),
    ("__format__", ["def __format__(self, spec): return format(self.a, spec or '3d')"]),
    ("__setattr__", ["def __setattr__(self, name, value):", "    LOG.append(('set', name))", "    object.__setattr__(self, name, value)"]),
    ("__delitem__", ["def __delitem__(self, key): del self.b[key]"]),
    ("__neg__", ["def __neg__(self): return -self.a"]),
    ("__getattribute__", ["def __getattribute__(self, name):", "    found = object.__getattribute__(self, name)", "    if name == 'a': LOG.append('got')", "    return found"]),
]  # fmt: skip
# The special method, the kind of what comes back, an expression in which O is the object.
SPECIAL_USES: list[tuple[str, str, str]] = [
    ("__len__", "int", "len(O)"),
    ("__bool__", "bool", "bool(O)"),
    ("__bool__", "int", "(1 if O else <int>)"),
    ("__eq__", "bool", "(O == O)"),
    ("__eq__", "bool", "(O in [<int>, O])"),
    ("__hash__", "bool", "(O in {O: 1})"),
    ("__hash__", "int", "{O: <int>}[O]"),
    ("__lt__", "bool", "(O < O)"),
    ("__iter__", "list", "[*O]"),
    ("__iter__", "list", "sorted(O)"),
    ("__iter__", "tuple", "tuple(O)"),
    ("__contains__", "bool", "(<int> in O)"),
    ("__getitem__", "int", "O[<int> % 2]"),
    ("__getitem__", "list", "O[:2]"),
    ("__call__", "int", "O(<int>)"),
    ("__call__", "int", "O()"),
    ("__add__", "int", "(O + <int>)"),
    ("__add__", "int", "(<int> + O)"),
    ("__add__", "int", "sum([O, 1], 0)"),
    ("__getattr__", "int", "O.zzz"),
    ("__repr__", "str", "repr(O)"),
    ("__repr__", "str", "f'{O}'"),
    ("__repr__", "str", "'%s|%r' % (O, [O])"),
    ("__index__", "int", "[5, 6, 7][O]"),
    ("__format__", "str", "f'{O:4d}'"),
    ("__neg__", "int", "(-O)"),
]
SPECIAL_STATEMENTS: list[tuple[str, str, str]] = [
    ("__setitem__", "", "O[0] = <int>"),
    ("__delitem__", "", "del O[0]"),
    ("__iadd__", "", "O += <int>"),
    ("__getitem__", "", "LOG.append(list(itertools.islice(iter(O), 3)))"),
]
