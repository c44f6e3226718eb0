"""A function cut in two anywhere behaves as the whole one: result, effects, exceptions with their context, handled state."""

import sys
import types

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmill_bytecode_frontend.bytecode import decode
from opmill_bytecode_frontend.errors import Unsupported
from opmill_bytecode_frontend.resume import closure_of, split

LOG = []


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, value, traceback):
        LOG.append(f"exit {self.name} {value!r} {sys.exception()!r}")
        return self.swallow


def boom(x):
    LOG.append(f"boom {x}")
    if x > 2:
        raise ValueError(x)
    return x


def outcome(function, *args):
    LOG.clear()
    try:
        result = ("returned", repr(function(*args)))
    except Exception as error:
        chain, link = [], error
        while link is not None:
            chain.append(repr(link))
            link = link.__context__
        last = error.__traceback__
        lines = []
        while last is not None:
            lines.append(last.tb_lineno)
            last = last.tb_next
        result = ("raised", chain, lines[-1])
    assert sys.exception() is None
    return result, list(LOG)


def pieces(function):
    """The function cut before every instruction where that is possible, with the refusals counted."""
    for instruction in decode(function.__code__).instructions:
        try:
            yield instruction, *split(function, instruction.offset)
        except Unsupported as refusal:
            assert refusal.code in ("FE102", "FE103", "FE105"), refusal


def check(function, arguments, bind=lambda f: f):
    expected = [outcome(bind(function), *args) for args in arguments]
    cuts = 0
    for instruction, first, _ in pieces(function):
        cuts += 1
        assert [outcome(bind(first), *args) for args in arguments] == expected, instruction
    return cuts


def contexts_in_a_loop(x):
    out = []
    for i in range(4):
        with Manager("a", i % 2 == 0):
            out.append(boom(x + i) * 2)
        try:
            out.append(boom(x + i))
        except ValueError as error:
            out.append(str(error))
            try:
                raise KeyError(x)
            except KeyError as inner:
                out.append((repr(inner.__context__), inner.args))
        else:
            out.append("else")
        finally:
            out.append("finally")
            LOG.append(repr(sys.exception()))
    return out


def cells(x, *rest, k=3, **more):
    y = x + k
    g = lambda z: z + y + x  # noqa: E731
    y += 1
    s = [g(i) for i in range(3)]
    t = [lambda: x + q for q in s]
    d = {i: (j, x) for i in range(2) for j in s if j > 1}
    x = x * 2
    return s, d, [u() for u in t], rest, more, g(1), f"{x:>4} {y!r}"


def unwinding(x):
    try:
        try:
            boom(x)
        finally:
            LOG.append("finally")
            boom(x - 1)
    except ValueError as error:
        LOG.append(str(error))
        raise
    return sorted(locals()) if x else None


def matching(x, *, y=(1, 2, 3)):
    a, *b = y
    a, b = b, a
    assert x != 99, "no"
    match x:
        case 1:
            r = "one"
        case [p, _]:
            r = p
        case {"k": v}:
            r = v
        case _:
            r = str(x)
    x = x if x else None
    return a, b, r, x is None, x in y, not x, y[0:2], -len(y)


def two_managers(x):
    with Manager("a"), Manager("b", True):
        boom(x)
        with Manager("c"):
            return boom(x + 1)
    return "swallowed"


CASES = [
    (contexts_in_a_loop, [(0,), (1,), (3,)]),
    (cells, [(1,), (2, 5)]),
    (unwinding, [(0,), (3,), (9,)]),
    (matching, [(1,), ([4, 5],), (0,), ({"k": 1},), (99,)]),
    (two_managers, [(0,), (2,), (5,)]),
]


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=[case[0].__name__ for case in CASES])
def test_functions(function, arguments):
    assert check(function, arguments) > 20


def test_methods_with_super():
    class Base:
        def m(self, x):
            return ("base", x)

    class Derived(Base):
        def m(self, x, z=2):
            r = super().m(x)
            me = lambda: self  # noqa: E731
            while x < 10:
                x += z
                if x == 5:
                    continue
                if x > 7:
                    break
            else:
                return "never"
            del z
            return r, super().m(x), me() is self

    derived = Derived()
    assert check(Derived.m, [(1,), (3,)], bind=lambda f: types.MethodType(f, derived)) > 20


@pytest.mark.parametrize(("function", "arguments"), [CASES[0], CASES[3], CASES[4]], ids=lambda case: getattr(case, "__name__", ""))
def test_resume_functions_can_be_cut_again(function, arguments):
    original = {i.offset: (i.opname, i.position) for i in decode(function.__code__).instructions}
    expected = [outcome(function, *args) for args in arguments]
    for number, (_, first, resume) in enumerate(pieces(function)):
        if number % 19:
            continue
        for now, then in resume.offsets.items():
            again = next(i for i in decode(resume.code).instructions if i.offset == now)
            assert again.position == original[then][1]
        rest = next(c for c in first.__code__.co_consts if isinstance(c, types.FunctionType) and c.__code__ is resume.code)
        for place, (_, second, _) in enumerate(pieces(rest)):
            if place % 11:
                continue
            consts = tuple(second if c is rest else c for c in first.__code__.co_consts)
            twice = types.FunctionType(first.__code__.replace(co_consts=consts), first.__globals__, closure=first.__closure__)
            twice.__kwdefaults__ = function.__kwdefaults__
            assert [outcome(twice, *args) for args in arguments] == expected


def test_cells_are_shared_with_functions_made_before_the_cut():
    def outer():
        count = 0

        def bump():
            nonlocal count
            count += 1
            return count

        bump()
        count += 10
        return bump(), bump, lambda: count

    for _, first, _ in pieces(outer):
        value, bump, read = first()
        assert (value, bump(), read()) == (12, 13, 13)


def test_names_lines_and_closures_stay():
    free = 5

    def f(x):
        y = x + free
        return boom(y)

    for _, _, resume in pieces(f):
        assert resume.code.co_name == "f"
        assert resume.code.co_filename == __file__
        assert resume.code.co_firstlineno == f.__code__.co_firstlineno
        assert closure_of(resume, f.__code__, f.__closure__) == f.__closure__


def test_generators_are_refused_by_number():
    def f(x):
        yield x

    with pytest.raises(Unsupported) as refusal:
        split(f, decode(f.__code__).instructions[-3].offset)
    assert refusal.value.code == "FE101"
    assert refusal.value.hint


# Random functions of x, y, z: every statement is legal anywhere, loops end by themselves.
VALUES = st.sampled_from(["x", "y", "z", "1", "2", "(x + y)", "(z - 1)", "boom(x)", "(x if y > z else boom(z))", "len([x, y])"])


def indent(block):
    return ["    " + line for line in block]


def blocks(inner):
    body = st.lists(inner, min_size=1, max_size=3).map(lambda parts: [line for part in parts for line in part])
    return st.one_of(
        st.builds(lambda c, a, b: [f"if {c} > 1:", *indent(a), "else:", *indent(b)], VALUES, body, body),
        st.builds(lambda n, a: [f"for i in range({n}):", *indent(a)], st.sampled_from("123"), body),
        st.builds(
            lambda n, a: [f"for i in range({n}):", *indent([*a, "if y > 3: break", "if z > 2: continue", "z += 1"])],
            st.sampled_from("23"),
            body,
        ),
        st.builds(lambda s, a: [f"with Manager('m', {s}) as m:", *indent(a)], st.booleans(), body),
        st.builds(lambda a, b: ["try:", *indent(a), "except ValueError as e:", *indent(b)], body, body),
        st.builds(lambda a, b: ["try:", *indent(a), "except (KeyError, ValueError):", *indent([*b, "raise"])], body, body),
        st.builds(lambda a, b: ["try:", *indent(a), "finally:", *indent(b)], body, body),
    )


SIMPLE = st.one_of(
    st.builds(lambda t, v: [f"{t} = {v}"], st.sampled_from("xyz"), VALUES),
    st.builds(lambda t, v: [f"{t} += {v}"], st.sampled_from("xyz"), VALUES),
    st.builds(lambda v: [f"LOG.append({v})"], VALUES),
    st.builds(lambda v: [f"LOG.append([j + {v} for j in range(2)])"], VALUES),
    st.builds(lambda v: [f"LOG.append((lambda a: a + x)({v}))"], VALUES),
    st.builds(lambda v: [f"return {v}"], VALUES),
    st.just(["raise ValueError(x)"]),
)
PROGRAMS = st.lists(st.recursive(SIMPLE, blocks, max_leaves=8), min_size=1, max_size=4)


@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_random_functions(parts):
    body = [line for part in parts for line in part]
    source = "\n".join(["def f(x, y, z):", *indent(body), "    return x, y, z"])
    space = {"LOG": LOG, "boom": boom, "Manager": Manager}
    exec(compile(source, "random.py", "exec"), space)
    check(space["f"], [(0, 1, 2), (3, 0, 1), (1, 4, 0)])
