"""Graph breaks inside functions that captured code calls: every frame on the stack goes on, none is given up.

Random call trees are compared with the plain run: result, order of what was logged, exception, and the functions and lines of its
traceback."""

from __future__ import annotations

import functools
import os
import sys
import traceback
import types
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from alike import same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opmill_bytecode_frontend import CaptureOptions, Unsupported, capture
from opmill_bytecode_frontend.breaks.natives import refuse_reading_frame
from opmill_bytecode_frontend.entry.capture import parts
from opmill_bytecode_frontend.errors import CaptureWarning
from opmill_bytecode_frontend.eval_frame import set_callback
from opmill_bytecode_frontend.values.classes import ClassValue

DEPTH = 4


class Noting:
    """A context manager in Python that says what happens and suppresses KeyError."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __enter__(self) -> Noting:
        self.log.append("in")
        return self

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log.append(kind.__name__ if kind else None)
        return kind is KeyError


class Layer(torch.nn.Module):
    """A module whose forward is one of the random functions."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.full((3,), 1.5))

    def forward(self, x: Any, log: list[Any], k: int = 0) -> Any:
        return self.function(x * self.weight, log, k=k)


# --- random call trees --------------------------------------------------------------------------------------------------------------


@st.composite
def value(draw: Any, level: int) -> str:
    """A tensor; a call of a function one level down among others."""
    kind = draw(st.integers(0, 9 if level else 4))
    inner = f"f{level - 1}"
    return {
        0: lambda: "x",
        1: lambda: f"(x + {draw(st.integers(-2, 3))})",
        2: lambda: "(x * k).relu()",
        3: lambda: "(x - item(x))",
        4: lambda: "(x * scale)",
        5: lambda: f"{inner}(x, log)",
        6: lambda: f"({inner}(x, log, k=k + 1) - x)",
        7: lambda: f"{inner}(*(x + 1, log), **dict(k=2))",
        8: lambda: f"layer{level - 1}(x, log)",
        9: lambda: f"functools.partial({inner}, k=1)(x, log)",
    }[kind]()


@st.composite
def statement(draw: Any, level: int, depth: int, loop: bool) -> list[str]:
    def block(inside: bool = loop) -> list[str]:
        return ["    " + line for _ in range(draw(st.integers(1, 2))) for line in draw(statement(level, depth - 1, inside))]

    simple = {
        0: lambda: [f"x = {draw(value(level))}"],
        1: lambda: [f"x = {draw(value(level))} + {draw(value(level))}"],
        2: lambda: ["log.append(item(x))"],
        3: lambda: [f"log.append(({draw(st.integers(0, 9))}, k))"],
        4: lambda: [f"if k > 0: raise {draw(st.sampled_from(['ValueError', 'KeyError']))}(k)"],
        5: lambda: [f"if k > 1: {draw(st.sampled_from(['break', 'continue'])) if loop else 'return x'}"],
        6: lambda: ["bump(item(x))"],
        7: lambda: ["x = twice(x)"],
        8: lambda: [f"x = [{draw(value(level))} + i for i in range(2)][-1]"],
        9: lambda: ["x.add_(1)", "k += 1"],
        10: lambda: ["log.append(sorted(locals()))"],
        11: lambda: [f"x = max([x, {draw(value(level))}], key=lambda z: z.sum().tolist())"],
        12: lambda: [f"raise RuntimeError({draw(st.integers(0, 9))})"],
    }
    nested = {
        13: lambda: [f"for i in range({draw(st.integers(1, 3))}):", *block(True)],
        14: lambda: ["try:", *block(), "except ValueError as e:", "    log.append((str(e), type(e.__context__).__name__))", *block()],
        15: lambda: ["try:", *block(), "finally:", "    log.append('finally')", *block(False)],
        16: lambda: ["with Noting(log):", *block()],
        17: lambda: ["with torch.no_grad():", *block(), "log.append(torch.is_grad_enabled())"],
        18: lambda: ["if x.sum() > 0:", *block(), "else:", *block()],
        19: lambda: ["try:", *block(), "except KeyError:", *block(), "    raise"],
        20: lambda: ["for z in pairs(x):", "    x = x + z", *block(True)],
    }
    choices = {**simple, **nested} if depth else simple
    return choices[draw(st.sampled_from(sorted(choices)))]()


HELPERS = {
    "bump": """    def bump(by):
        nonlocal scale
        log.append(by)
        scale = scale + 1
        return item(x) + scale
""",
    "twice": """    def twice(z, n=2):
        z = z * 2 + item(z) / 100
        return twice(z, n - 1) if n else z + scale
""",
    "pairs": """    def pairs(z):
        yield z
        log.append('pair')
        yield z * 2
""",
}


@st.composite
def trees(draw: Any) -> str:
    text = "def item(z):\n    return round(z.sum().tolist(), 3)\n"
    for level in range(DEPTH):
        lines = [line for _ in range(draw(st.integers(1, 3))) for line in draw(statement(level, 2, False))]
        body = "".join(f"    {line}\n" for line in lines) + "    return x + scale\n"
        helpers = [text for name, text in HELPERS.items() if f"{name}(" in body]
        text += "".join([f"def f{level}(x, log, k=0):\n    scale = 2.0\n", *helpers, body])
        text += f"layer{level} = Layer(f{level})\n"
    return text


# --- comparing ----------------------------------------------------------------------------------------------------------------------

FILE = "<tree>"


def outcome(fn: Any) -> Any:
    x = torch.tensor([1.0, -2.0, 0.5])
    log: list[Any] = []
    lines: list[Any] = []
    try:
        result = fn(x, log)
    except Exception as exc:
        lines = [(f.name, f.lineno) for f in traceback.extract_tb(exc.__traceback__) if f.filename in (FILE, __file__)][1:]
        result = (type(exc).__name__, str(exc), type(exc.__context__).__name__)
    return (result, x, log, torch.is_grad_enabled()), lines


def follows(lines: Any, want: Any) -> bool:
    """Whether a traceback shows the right frames: those that an exception passed while code was captured may be missing."""
    rest = iter(want)
    return lines[:1] == want[:1] and all(line in rest for line in lines)


def compare(text: str) -> None:
    namespace: dict[str, Any] = {"torch": torch, "functools": functools, "Noting": Noting, "Layer": Layer}
    exec(compile(text, FILE, "exec"), namespace)
    plain = namespace[f"f{DEPTH - 1}"]
    want, want_lines = outcome(plain)
    for options in (CaptureOptions(), CaptureOptions(nested_breaks=False)):
        compiled = capture(plain, "eager", options=options)
        for _ in range(2):
            got, lines = outcome(compiled)
            assert same(got, want) and follows(lines, want_lines), f"{text}\n{options}\nwant {want} {want_lines}\ngot  {got} {lines}"


@pytest.mark.filterwarnings("ignore")
@settings(
    max_examples=int(os.environ.get("OPMILL_FUZZ", "25")), deadline=None, derandomize="OPMILL_FUZZ" not in os.environ, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(trees())
def test_random_call_trees(text: str) -> None:
    compare(text)


# --- functions that raise -----------------------------------------------------------------------------------------------------------


def check_divisor(k: Any, log: Any) -> Any:
    log.append(k)
    if k == 0:
        raise ValueError("zero", k) from KeyError("why")
    return 10 // k


def raises_below(x, log, k=0):
    y = x * 2
    log.append("before")
    return y * check_divisor(k, log)


def raises_in_an_operation(x, log):
    log.append(1)
    return x.sin() @ torch.ones(7, 7)


def raises_in_a_builtin(x, log):
    y = x + 1
    for n in [2, 1, 0]:
        y = y + 1 // n
    return y


def raises_in_a_handler(x, log):
    try:
        check_divisor(0, log)
    except ValueError:
        log.append(x + 1)
        raise KeyError("other")  # noqa: B904


def raises_again(x, log):
    try:
        check_divisor(0, log)
    finally:
        log.append(x + 1)


def raises_in_a_generator(x, log):
    def numbers():
        yield 1
        raise IndexError("end")

    source = numbers()
    next(source)
    log.append(abs(1) + abs(2) + abs(3) + abs(4))
    return x * next(source)


def raises_where_it_cannot_be_left(x, log):
    def numbers():
        try:
            raise ValueError
        except ValueError:
            yield 1
            raise IndexError("end") from None

    source = numbers()
    next(source)
    log.append(abs(1) + abs(2) + abs(3) + abs(4))
    return x * next(source)


def raises_what_it_is_given(x, log):
    x = x + 1
    raise GIVEN


GIVEN = OverflowError("given")


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        raises_below,
        raises_in_an_operation,
        raises_in_a_builtin,
        raises_in_a_handler,
        raises_again,
        raises_in_a_generator,
        raises_what_it_is_given,
    ],
    ids=lambda f: f.__name__,
)
def test_functions_that_raise_are_captured_once(fn: Any, fullgraph: bool) -> None:
    translations: list[Any] = []
    breaks: list[Any] = []
    compiled = capture(fn, "eager", fullgraph=fullgraph, on_translation=translations.append, on_break=breaks.append)
    want = outcome(fn)
    GIVEN.__traceback__ = None
    assert want[0][0][0] != torch.Tensor
    for turn in range(3):
        got = outcome(compiled)
        GIVEN.__traceback__ = None
        assert same(got[0], want[0]) and got[1] == want[1], (got, want)
        if turn == 0:
            before = len(translations)
    assert len(translations) == before
    assert not breaks


def test_what_cannot_be_left_in_time_is_given_up() -> None:
    translations: list[Any] = []
    compiled = capture(raises_where_it_cannot_be_left, "eager", on_translation=translations.append)
    for _ in range(12):
        assert same(outcome(compiled)[0], outcome(raises_where_it_cannot_be_left)[0])
    assert compiled.on_miss.__self__.eager


def test_causes_are_kept() -> None:
    for fn in (check_divisor, capture(check_divisor, "eager"), capture(lambda k, log: check_divisor(k, log), "eager")):
        with pytest.raises(ValueError) as caught:
            fn(0, [])
        assert repr(caught.value.__cause__) == "KeyError('why')"


# --- functions called by code that runs natively ------------------------------------------------------------------------------------


def weigh(z: Any) -> Any:
    return (z * 2).sum() - 1


class Weigher:
    def weigh(self, z: Any) -> Any:
        return (z * 3).sum()


@functools.lru_cache(maxsize=None)  # noqa: UP033
def kept(n: int) -> Any:
    return weigh(torch.ones(n))


@torch.no_grad()
def without_gradients(z: Any) -> Any:
    return weigh(z) * 2


def sorts(x, log):
    items = [x * 3, x, x * 2]
    items.sort(key=weigh)
    return max(items, key=Weigher().weigh) + functools.reduce(lambda a, b: a + weigh(b), items)


def asks_a_cache(x, log):
    log.append(kept(len(log) + 3).item())
    return x + 1


def calls_through_torch(x, log):
    y = torch.utils.checkpoint.checkpoint(weigh, x.requires_grad_(), use_reentrant=True)
    return y.detach() + without_gradients(x)


def calls_through_a_thread(x, log):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(weigh, x).result() + 1


def raises_below_native_code(x, log):
    return sorted([x, 2], key=fails_for_numbers)


def fails_for_numbers(z):
    return z.sum().tolist()


@pytest.mark.parametrize(
    "fn", [sorts, asks_a_cache, calls_through_torch, calls_through_a_thread, raises_below_native_code], ids=lambda f: f.__name__
)
def test_what_native_code_calls_is_right(fn: Any) -> None:
    compiled = capture(fn, "eager")
    for _ in range(3):
        kept.cache_clear()
        want = outcome(fn)
        kept.cache_clear()
        got = outcome(compiled)
        assert same(got[0], want[0]) and got[1] == want[1], (got, want)
    assert set_callback(None) is None


def test_the_capture_itself_is_not_captured() -> None:
    helper = capture(lambda z: (z * 2).sum(), "eager")

    def fn(x, log):
        log.append(sorted([1, 2], key=lambda n: -helper(x * n + x.sum().tolist()).item()))
        return x + 1

    compiled = capture(fn, "eager")
    for n in range(2, 5):
        compiled(torch.ones(n), [])
    for part in [*parts(compiled), *parts(helper)]:
        assert part.__wrapped__.__code__.co_filename == __file__


def test_what_native_code_calls_is_captured() -> None:
    for fn in (sorts, raises_below_native_code):
        compiled = capture(fn, "eager")
        outcome(compiled)
        assert any(part.__wrapped__ in (weigh, fails_for_numbers) for part in parts(compiled)), fn


# --- what is in which graph ---------------------------------------------------------------------------------------------------------


def lowest(x: Any) -> Any:
    x = x * 3
    x = x + x.sum().tolist()
    return x - 4


def middle(x: Any, log: Any) -> Any:
    y = x.exp()
    z = lowest(y + 1)
    return z * y


def top(x: Any, log: Any) -> Any:
    y = x.sin()
    return middle(y, log).cos() + y


def graphs_of(fn: Any, **options: Any) -> list[list[str]]:
    translations: list[Any] = []
    compiled = capture(fn, "eager", on_translation=translations.append, options=CaptureOptions(**options))
    x = torch.tensor([0.1, 0.2])
    assert torch.equal(compiled(x, []), fn(x, []))
    assert torch.equal(compiled(x, []), fn(x, []))
    return [
        [str(getattr(n.target, "__name__", n.target)) for n in t.gm.graph.nodes if n.op.startswith("call")] for t in translations if t.gm
    ]


def test_what_comes_before_the_break_is_one_graph() -> None:
    assert graphs_of(top) == [["sin", "exp", "add", "mul", "sum"], ["add", "sub"], ["mul"], ["cos", "add"]]
    assert graphs_of(top, nested_breaks=False) == [["sin"], ["exp", "add"], ["mul", "sum"], ["add", "sub"], ["mul"], ["cos", "add"]]


def test_a_loop_in_a_callee_shares_its_resume_functions() -> None:
    def inner(x, n):
        for i in range(n):
            x = x + x.sum().tolist()
        return x

    def fn(x, log):
        for _ in range(3):
            x = inner(x * 2, 20)
        return x

    assert len(graphs_of(fn)) < 20


class Stage(torch.nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), float(n)))

    def forward(self, x: Any) -> Any:
        x = x * self.weight
        x = x + x.sum().tolist()
        return x * self.weight


@pytest.mark.filterwarnings("error")
def test_more_modules_than_the_recompile_limit() -> None:
    stages = torch.nn.ModuleList([Stage(n) for n in range(12)])

    def fn(x, log):
        for stage in stages:
            x = stage(x) / 100
        for i, (stage, name) in enumerate(zip(stages, "abcdefghijkl")):
            x = stage(x) * i
        return x

    compiled = capture(fn, "eager", options=CaptureOptions(recompile_limit=4))
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x, []), fn(x, []))
    assert max(len(part.entries) for part in parts(compiled)) <= 3 * len(stages)
    with torch.no_grad():
        stages[7].weight.add_(1)
        stages[8].weight = torch.nn.Parameter(torch.ones(2))
    assert torch.equal(compiled(x, []), fn(x, []))


def test_the_limit_warns_at_the_call() -> None:
    compiled = capture(lambda x, log: x * len(log), "eager", options=CaptureOptions(recompile_limit=1))
    compiled(torch.ones(2), [1])
    with pytest.warns(CaptureWarning, match="FE090") as caught:
        compiled(torch.ones(2), [1, 2])
    assert caught[0].filename == __file__


def test_the_frames_of_a_break_are_told() -> None:
    found: list[Any] = []
    capture(top, "eager", on_break=found.append)(torch.ones(2), [])
    [broken] = found
    assert [(os.path.basename(file), name) for file, _line, name in broken.stack] == [
        (os.path.basename(__file__), name) for name in ("lowest", "middle", "top")
    ]
    assert [line for _file, line, _name in broken.stack] == [fn.__code__.co_firstlineno + 2 for fn in (lowest, middle, top)]


def test_callers_are_seen_from_inside() -> None:
    def names() -> list[str]:
        frame, found = sys._getframe(1), []
        while frame is not None and len(found) < 3:
            if frame.f_code.co_filename == __file__:
                found.append((frame.f_code.co_name, frame.f_globals is globals()))
            frame = frame.f_back  # type: ignore[assignment]
        return found

    def inner(x, log):
        x = x + x.sum().tolist()
        log.append(list(map(NATIVE, [names])))
        return x

    def fn(x, log):
        return inner(x, log) + 1

    want: list[Any] = []
    got: list[Any] = []
    fn(torch.ones(2), want)
    capture(fn, "eager")(torch.ones(2), got)
    assert got == want


NATIVE = functools.lru_cache(maxsize=0)(lambda f: f())


def test_no_graph_ends_at_a_super_that_reads_its_caller():
    frame: Any = types.SimpleNamespace(where=lambda: "here")
    with pytest.raises(Unsupported, match="FE071"):
        refuse_reading_frame(frame, ClassValue(super), [])
    refuse_reading_frame(frame, ClassValue(super), [ClassValue(int), ClassValue(int)])
