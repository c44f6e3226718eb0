"""What random Python programs and CPython's own tests showed to differ: iterators that are searched, lengths that are asked for, what
exceptions keep, partials that are looked into, generators that are dropped."""

from __future__ import annotations

import pytest
import told

PROGRAMS = told.programs("""
import copy, decimal, inspect, random
class Sized:
    def __init__(s, k): s.k = k
    def __iter__(s):
        LOG.append("iter")
        return iter([1, 2])
    def __len__(s):
        LOG.append("len")
        if s.k == 1: raise ValueError("k")
        if s.k == 2: raise TypeError
        return -1 if s.k == 3 else "a" if s.k == 4 else 2
class Hinted:
    def __init__(s, k): s.k = k
    def __iter__(s): return iter([1, 2])
    def __length_hint__(s):
        LOG.append("hint")
        if s.k == 1: raise ValueError("k")
        if s.k == 2: raise TypeError
        return -1 if s.k == 3 else "a" if s.k == 4 else NotImplemented if s.k == 5 else 2
class Indexed:
    def __getitem__(s, k):
        LOG.append(k)
        if k > 4: raise IndexError
        return k
USES = [list, tuple, sorted, set, lambda c: [*c], lambda c: (*c, 1), lambda c: max(*c), lambda c: [0].extend(c), collections.deque, sum,
    lambda c: list(itertools.product(c)), lambda c: [v for v in c], lambda c: list(map(abs, c)), lambda c: [0].__iadd__(c), lambda c: list(zip(c))]
def inner_uses(make, ks):
    found = []
    for k in ks:
        for use in USES:
            try: found.append(use(make(k)))
            except Exception as e: found.append((type(e), e.args))
    return found
def lengths_that_are_asked_for(x): return x, inner_uses(Sized, range(5))
def hints_that_are_asked_for(x): return x, inner_uses(Hinted, range(6))
class Breaking(Sized):
    def __len__(s): return int(B(s.k))
def a_break_in_a_length(x):
    a, b = Breaking(3)
    return x + 1, list(Breaking(2)), [*Breaking(4), a, b]
def a_search_leaves_the_rest(x):
    found = []
    for make in (iter, lambda v: map(abs, v), lambda v: (q for q in v), lambda v: filter(None, v), lambda v: zip(v)):
        it = make([1, 2, 3, 4])
        found.append(((2 in it), list(it)))
    return x + 1, found, all(c in (it := iter("abcd")) for c in "bd"), 3 in itertools.count()
def a_search_behind_a_break(x):
    it = iter([1, 2, 3, 4])
    B(x)
    return x + 1, 2 in it, list(it)
def a_search_by_index(x):
    return x, 2 in Indexed(), 9 in Indexed(), operator.indexOf(Indexed(), 3), operator.contains(Indexed(), 1)
class Slotted:
    __slots__ = ("a", "b")
    def __init__(s, a): s.a = a
    def __getattribute__(s, name):
        LOG.append(name)
        return object.__getattribute__(s, name)
def slots_read_by_the_program_alone(x):
    o = Slotted(3)
    B(x)
    return x, o.a, o.a, hasattr(o, "b")
def a_naked_exception_in_a_group(x):
    try:
        try: raise ValueError(3)
        except* ValueError as e:
            LOG.append((str(e.args), places(e)))
            raise
    except BaseException as g: return x, g.args, places(g), repr(g)
def a_group_behind_a_break(x):
    try: raise ValueError(3)
    except* ValueError as e:
        B(x)
        LOG.append((str(e.args), places(e)))
    return x
def groups_raised_at_the_end(x):
    try:
        try: raise ExceptionGroup("g", [ValueError(1), KeyError(2), TypeError(3)])
        except* ValueError as e: raise OSError(3)
        except* KeyError as e: raise
    except BaseException as g: return x, g.args, places(g), [places(e) for e in g.exceptions]
def what_cannot_be_assigned_to_exceptions(x):
    found = []
    for e, name in ((ExceptionGroup("g", [KeyError()]), "message"), (ExceptionGroup("g", [KeyError()]), "exceptions"), (KeyError(), "__suppress_context__")):
        try: setattr(e, name, 3)
        except Exception as g: found.append((type(g), str(g)))
    return x, found
class Imported(ImportError):
    def __init__(s, a): super().__init__(a, name="n", path="p")
class Named(AttributeError):
    def __init__(s, a, **k): super().__init__(a, name="n", obj=3, **k)
class Stopped(StopIteration):
    def __init__(s, a): super().__init__(a, 2)
class Silent(OSError):
    def __init__(s, a): pass
class Filed(OSError):
    def __init__(s, a, b): super().__init__(a, b, "file")
class Made(OSError):
    def __new__(cls, a, b): return super().__new__(cls, a, b)
    def __init__(s, a, b): super().__init__(7, "z")
class Valued(ValueError):
    def __init__(s, **k): super().__init__(**k)
def what_initializers_of_exceptions_keep(x):
    i, n, s = Imported("t"), Named("t"), Stopped(1)
    first = (i.args, i.name, i.path, i.msg, str(i)), (n.args, n.name, n.obj), (s.args, s.value), Silent(5).args, str(Silent(5))
    f, m = Filed(2, "w"), Made(2, "w")
    B(x)
    second = (i.name, str(i)), (f.args, f.filename, str(f)), (m.args, m.errno)
    for bad in (lambda: Named("t", zz=3), lambda: Valued(zz=3)):
        try: bad()
        except TypeError as e: LOG.append(str(e))
    return x, first, second
def exceptions_initialized_again(x):
    i, o, s = ImportError("t", name="n", path="p"), OSError(2, "a", "f"), StopIteration(4)
    s.value = 9
    i.__init__(); o.__init__(3, "b"); s.__init__(5)
    return x, (i.args, i.name, i.path, i.msg), (o.args, o.errno, o.filename), (s.args, s.value)
def inner_given(*a, **k): return a, k
def partials_that_are_looked_into(x):
    p = functools.partial(inner_given, [1], z=2)
    p.keywords["a"] = 1
    k, a = p.keywords, p.args
    B(x)
    p.keywords["b"] = 2
    k["c"] = 3
    return x, p(), p.keywords is k, p.args is a, copy.copy(p).args is a
def partials_with_attributes_stay_apart(x):
    p = functools.partial(inner_given, 1)
    q = functools.partial(p, 2)
    p.attr = 5
    r = functools.partial(p, 2)
    return x, q.func is inner_given, q.args, r.func is p, r.args, r()
class Deque(collections.deque): pass
class Other(collections.deque):
    def __new__(cls, *a): return [42] if a else super().__new__(cls)
def deques_made_by_a_class(x):
    found = []
    for d in (Deque([1]), Other()):
        for use in (lambda d: d * 2, lambda d: d + collections.deque(), lambda d: d.copy(), copy.copy):
            try: found.append(type(use(d)))
            except TypeError as e: found.append(str(e))
    return x, found
def deques_written_while_walked(x):
    d = collections.deque([1, 2, 3])
    it = iter(d)
    B(x)
    d[1], d[0] = d[0], d[1]
    for k in d: d[2] = k
    return x, list(it), d
class Truncated:
    def __trunc__(s): return 3
def warnings_of_numbers(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        found = int(Truncated())
    return x, found, [str(e.message) for e in w]
def rows_that_leave(x):
    made = itertools.combinations([1, 2, 3], 2), itertools.product("ab", [1, 2], repeat=1), itertools.permutations([1, 2])
    for it in made: next(it)
    B(x)
    return x, [type(it) for it in made], [list(it) for it in made]
def slots_that_are_empty(x):
    t = tuple([1][:0])
    class A: __slots__ = t
    class C: z = t
    return x, A.__slots__, C.z, C().z
def iterators_of_one_tee_that_leave(x):
    a, b = itertools.tee(iter([1, 2, 3]))
    next(a)
    B(x)
    c = copy.copy(a)
    return x, type(a), list(b), list(a), list(c)
def texts_of_modules(x):
    m = types.ModuleType("m")
    before = repr(m)
    m.__file__ = "m.py"
    between = repr(m)
    del m.__name__
    return x, before, between, str(m)
def an_order_that_does_not_notice(x):
    od = collections.OrderedDict.fromkeys("abc")
    dict.__delitem__(od, "a")
    found = []
    for use in (repr, list, len, lambda o: list(o.items())):
        try: found.append(use(od))
        except KeyError as e: found.append(str(e))
    return x, found
def what_is_told_of_functions_that_were_written_to(x):
    def f(a, b=2): pass
    class A:
        def m(s): pass
    f.__signature__ = inspect.Signature()
    A.m.known = 3
    return x, str(inspect.signature(f)), "known" in dir(A().m), "known" in dir(f)
class New:
    def __new__(cls, *args): return super().__new__(cls, *args)
class Init:
    def __init__(s, *args): s.a = args
class Neither: pass
def arguments_that_nobody_takes(x):
    found = []
    for cls in (New, Init, Neither):
        for given in ((), (1,)):
            for use in (cls, lambda *a: object.__new__(cls, *a), lambda *a: cls.__new__(cls, *a)):
                try: found.append(vars(use(*given)))
                except TypeError as e: found.append(str(e))
    return x, found
def objects_of_each_call(x):
    m, c = types.ModuleType("m"), decimal.Context()
    found = hasattr(m, "kept"), c.prec
    m.kept, c.prec = 1, 5
    B(x)
    return x, found, m.kept, c.prec
class Slot: __slots__ = ()
SLOT, SYSTEM = Slot(), random.SystemRandom()
def no_weak_reference(x):
    try:
        LOG.append(1)
        weakref.ref(SLOT)
    except TypeError as e: return x, str(e), places(e)
DRAWN = random.Random(3)
def numbers_that_cannot_be_drawn(x):
    for bad in (lambda: DRAWN.randint(5, 1), lambda: DRAWN.seed((1,)), lambda: DRAWN.randrange(3, 1), lambda: DRAWN.uniform("a", 1)):
        try: bad()
        except (ValueError, TypeError) as e: LOG.append(type(e))
    return x
def numbers_of_the_system(x): return x, 0 <= SYSTEM.random() < 1, 3 <= SYSTEM.randint(3, 4) <= 4
def what_views_show(x):
    d = {}
    shown = d.keys().mapping
    before = shown == d, type(shown)
    d["k"] = 1
    B(x)
    d["l"] = 2
    return x, before, shown == d, len(shown)
class Meta(type): pass
class Setting:
    def __set__(s, o, v): LOG.append(v)
class OfMeta(metaclass=Meta): pass
OfMeta.a = 42
Meta.a = Setting()
def a_descriptor_of_the_metaclass_without_get(x): return x, OfMeta.a
class Got:
    def __call__(s, *a): LOG.append(len(a)); return 4
class Described: __get__ = Got()
class Holder: i = Described()
HOLDER = Holder()
def a_descriptor_whose_get_is_an_object(x): return x, HOLDER.i, Holder().i
def bases_that_do_not_fit(x):
    class A: pass
    class B_: pass
    class C(A, B_): pass
    class D(C, B_): pass
    try: C.__bases__ = (B_, A)
    except TypeError as e: LOG.append(str(e)[:20])
    return x, [c.__name__ for c in C.__mro__]
class Celled(type):
    def __new__(cls, name, bases, names, cell):
        names["__classcell__"] = cell
        return super().__new__(cls, name, bases, names)
def cells_that_are_none(x):
    for bad in (None, 0, "", 1.5):
        try:
            class A(metaclass=Celled, cell=bad): pass
        except TypeError as e: LOG.append(str(e))
    try:
        class Q: __qualname__ = object()
    except TypeError as e: LOG.append(str(e))
    return x
def a_generator_that_gets_into_a_block_later(x):
    def g():
        sent = yield 1
        B(x)
        try: yield sent
        finally: LOG.append("end")
    it = g()
    LOG.append(next(it))
    LOG.append(it.send(5))
    return x + 1
""")


@pytest.mark.filterwarnings("ignore:FE090")
@pytest.mark.parametrize("name", PROGRAMS)
def test_found_at_random(name: str) -> None:
    told.differs(PROGRAMS[name])
