"""Functions that a program makes again and again of one piece of code: what they share, what each has of its own, and how long that lives."""

import functools
import gc
import inspect
import traceback
import warnings
import weakref

import pytest
import torch

import opmill

X = torch.arange(6.0).reshape(2, 3)
MANY = range(2, 14)


class Held:
    def __init__(self, k):
        self.k = k


def multiplied(k):
    return lambda x: x * k


def of_method(k):
    class Local:
        def method(self, x):
            return x * k

    return Local().method


def counting(k):
    def function(x):
        nonlocal k
        k += 1
        return x * k

    return function


def summing(k):
    total = torch.zeros(3) + k

    def function(x):
        nonlocal total
        total = total + x.sum(0)
        return x * total

    return function


def recursive(k):
    def function(x, n=2):
        return x if n == 0 else function(x * k, n - 1)

    return function


def with_default(default):
    def function(x, y=default):
        return x * y

    return function


def with_named_default(default):
    def function(x, *more, y=default, **others):
        return x * y, more, others

    return function


def with_attribute(k):
    def function(x):
        return x * function.k

    function.k = k
    return function


def keeping_in_attribute(k):
    def function(x):
        function.seen = function.seen + 1
        return x * function.seen

    function.seen = k
    return function


def decorated(k):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * k

        return wrapper

    return decorate(torch.relu)


def broken(k):
    def function(x):
        y = x * k
        if y.sum() > 20:
            return y + k
        return y - k

    return function


def stateful(k):
    state = {"n": k}

    def function(x):
        state["n"] += 1
        return x * state["n"]

    return function


def seeded(k):
    made = torch.nn.Linear(3, 3)
    with torch.no_grad():
        made.weight.fill_(k)
        made.bias.fill_(-k)
    return made


# A form: what makes a function of a number, and how many graphs torch.compile has for twelve of them, each called twice.
FORMS = {
    "the same number": (lambda k: multiplied(3), 1),
    "ints": (multiplied, 2),
    "floats": (lambda k: multiplied(k + 0.5), 2),
    "tensors": (lambda k: multiplied(torch.full((3,), float(k))), 1),
    "kinds of tensors": (lambda k: multiplied(torch.ones(3, dtype=[torch.float32, torch.float64][k % 2])), 2),
    "modules": (lambda k: functools.partial(lambda m: lambda x: m(x) + 1)(seeded(k)), 1),
    "kinds of modules": (lambda k: (lambda m: lambda x: m(x) + 1)([seeded(k), torch.nn.ReLU()][k % 2]), 2),
    "functions": (lambda k: (lambda f: lambda x: f(x) + 1)([torch.sin, torch.cos, torch.sin][k % 3]), 2),
    "functions made anew": (lambda k: (lambda f: lambda x: f(x) + 1)(multiplied(k)), 2),
    "texts": (lambda k: (lambda s: lambda x: x + 1 if s == "a" else x * 2)("ab"[k % 2]), 2),
    "truths": (lambda k: (lambda s: lambda x: x + 1 if s else x * 2)(k % 2 == 0), 2),
    "dicts": (lambda k: (lambda d: lambda x: x * d["a"] + d["b"])({"a": k / 4, "b": k}), 2),
    "lists": (lambda k: (lambda d: lambda x: x * d[0] + d[1])([k, k + 1]), 2),
    "objects": (lambda k: (lambda o: lambda x: x * o.k)(Held(k)), 2),
    "nonlocal": (counting, 2),
    "nonlocal tensors": (summing, 1),
    "recursive": (recursive, 2),
    "defaults": (with_default, 2),
    "tensor defaults": (lambda k: with_default(torch.full((3,), float(k))), 1),
    "named defaults": (with_named_default, 2),
    "attributes": (with_attribute, 2),
    "attributes that change": (keeping_in_attribute, 2),
    "decorated": (decorated, 2),
    "no closure": (lambda k: lambda x: x * 2, 1),
    "methods of a class made anew": (of_method, 2),
    "partials": (lambda k: functools.partial(lambda a, x: x * a, k), 2),
    "partials of closures": (lambda k: functools.partial(multiplied(k)), 2),
    "a state": (stateful, 2),
    "behind a break": (broken, 8),
}


def same(ours, theirs):
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs) and ours.dtype == theirs.dtype
    if isinstance(ours, (tuple, list)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


@pytest.fixture(autouse=True)
def nothing_compiled():
    opmill.reset()
    yield
    opmill.reset()


def graphs_of(make, backend=None, keep=True):
    """How many graphs it takes to call what is made of each number twice, and whether that gives what it gives by itself."""
    graphs, kept = [], []

    def count(gm, inputs):
        graphs.append(gm)
        return gm.forward

    for k in MANY:
        compiled, plain = opmill.compile(make(k), backend=backend or count), make(k)
        for _ in range(2):
            assert same(compiled(X), plain(X)), k
        if keep:
            kept.append(compiled)
    return len(graphs)


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "dropped"])
@pytest.mark.parametrize("form", FORMS)
def test_as_many_graphs_as_torch_has(form, keep):
    make, most = FORMS[form]
    assert graphs_of(make, keep=keep) <= most


@pytest.mark.parametrize("form", FORMS)
def test_kernels_give_what_it_gives_by_itself(form):
    make, _ = FORMS[form]
    for k in (2, 3, 4):
        compiled, plain = opmill.compile(make(k)), make(k)
        for x in (X, X[:1], X):
            torch.testing.assert_close(compiled(x), plain(x))


def test_functions_in_turn_keep_their_own():
    functions = [(opmill.compile(make(k), backend="eager"), make(k)) for make in (counting, summing, with_attribute) for k in (2, 3, 5)]
    for _ in range(3):
        for compiled, plain in functions:
            assert same(compiled(X), plain(X))


def test_a_function_keeps_its_names_and_signature():
    plain = with_named_default(3)
    plain.__doc__ = "Multiplies."
    plain.mark = 7
    opmill.compile(with_named_default(2), backend="eager")(X)
    compiled = opmill.compile(plain, backend="eager")
    assert compiled.__name__ == "function" and compiled.__qualname__ == plain.__qualname__ and compiled.__doc__ == "Multiplies."
    assert compiled.__wrapped__ is plain and compiled.mark == 7 and compiled.__kwdefaults__ == {"y": 3}
    assert inspect.signature(compiled) == inspect.signature(plain)
    assert opmill.compile(compiled, backend="eager").__wrapped__ is plain


def test_as_a_method_it_is_bound():
    for k in (2, 3):

        class Local:
            @opmill.compile(backend="eager")
            def method(self, x, y=k):
                return x * y + self.n

            n = k

        assert torch.equal(Local().method(X), X * k + k)
        assert torch.equal(Local.method(Local(), X, y=5), X * 5 + k)


def test_super_finds_its_class():
    class Base:
        def method(self, x):
            return x + 1

    for k in (2, 3):

        class Local(Base):
            @opmill.compile(backend="eager")
            def method(self, x):
                if x.sum() > 100:
                    return x
                return super().method(x) * k

        assert torch.equal(Local().method(X), (X + 1) * k)


@pytest.mark.parametrize("change", ["__code__", "__defaults__", "__kwdefaults__", "default", "attribute"])
def test_what_is_replaced_in_one_is_seen(change):
    def make(k):
        def function(x, y=k, *, z=k):
            return x * y + z + getattr(function, "more", 0)

        return function

    changes = {
        "__code__": lambda f: setattr(f, "__code__", (lambda function: lambda x, y=1, *, z=2: x - y - z if function else 0)(1).__code__),
        "__defaults__": lambda f: setattr(f, "__defaults__", (torch.ones(3),)),
        "__kwdefaults__": lambda f: f.__kwdefaults__.update(z=8),
        "default": lambda f: setattr(f, "__defaults__", (9,)),
        "attribute": lambda f: setattr(f, "more", 5),
    }
    one, two = make(2), make(3)
    compiled = [opmill.compile(each, backend="eager") for each in (one, two)]
    for _ in range(2):
        assert same([each(X) for each in compiled], [one(X), two(X)])
    changes[change](one)
    for _ in range(2):
        assert same([each(X) for each in compiled], [one(X), two(X)])


def test_what_it_raises_comes_from_its_own_line():
    def make(at):
        def function(x):
            return x[at] * 2

        return function

    texts = []
    for at in (torch.tensor([0]), torch.tensor([9])):
        for function in (make(at), opmill.compile(make(at), backend="eager")):
            try:
                function(X)
            except IndexError as error:
                frames = traceback.extract_tb(error.__traceback__)
                texts.append((str(error), frames[-1].name, frames[-1].line))
    assert len(texts) == 2 and texts[0] == texts[1]


def test_a_warning_names_who_called():
    def make(k):
        def function(x):
            warnings.warn("told", stacklevel=2)
            return x * k

        return function

    for k in (2, 3, 4):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            opmill.compile(make(k), backend="eager")(X)
        assert [each.filename for each in told] == [__file__]


@pytest.mark.parametrize("form", ["objects", "nonlocal tensors", "functions made anew", "recursive", "defaults", "behind a break"])
def test_nothing_is_kept_alive(form):
    make, _ = FORMS[form]
    alive = []
    for k in MANY:
        function = make(k)
        alive.append(weakref.ref(function))
        opmill.compile(function, backend="eager")(X)
        del function
    gc.collect()
    assert [each for each in alive if each() is not None] == []


def test_objects_that_tell_die_when_they_do():
    told = []

    class Tells:
        def __init__(self, k):
            self.k = k

        def __del__(self):
            told.append(self.k)

    def make(held):
        return opmill.compile(lambda x: x * held.k, backend="eager")

    for k in MANY:
        function = make(Tells(k))
        function(X)
        assert k not in told
        del function
        assert told[-1] == k


def test_a_piece_of_code_is_compiled_as_often_as_the_limit_says():
    functions = [(lambda s: lambda x: x + len(s))(f"{k}{'-' * (k % 3)}") for k in range(20)]
    graphs = []

    def count(gm, inputs):
        graphs.append(gm)
        return gm.forward

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in functions:
            assert torch.equal(opmill.compile(function, backend=count, fullgraph=True)(X), function(X))
    assert len(graphs) == 8


def test_decorators_of_others_are_no_one_piece_of_code():
    def make(function):
        return torch.no_grad()(function)

    bodies = {k: eval(f"lambda x: x * {k} + x.sum()") for k in range(20)}
    opmill.reset_counters()
    kept = [opmill.compile(make(body), backend="eager", fullgraph=True) for body in bodies.values()]
    for compiled, body in zip(kept, bodies.values(), strict=True):
        assert torch.equal(compiled(X), body(X))
    assert opmill.counters()["captures"] == 20


def test_settings_are_told_apart():
    function = multiplied(2)
    one, two = opmill.compile(function, backend="eager"), opmill.compile(function, backend="eager", dynamic=True)
    one(X), two(X)
    assert one.entries and two.entries and one.entries != two.entries


def test_reset_forgets():
    compiled = opmill.compile(multiplied(2), backend="eager")
    compiled(X)
    assert len(compiled.entries) == 1
    opmill.reset()
    assert len(compiled.entries) == 0
    assert torch.equal(compiled(X), X * 2)


def test_a_miss_is_explained_by_the_name_of_the_variable():
    one, two = (opmill.compile(multiplied(k), backend="eager") for k in (2, 3))
    one(X)
    [failure] = two.explain_miss((X,), {})
    assert str(failure) == "k: expected 2, found 3"


def test_compiled_functions_as_values_share_too():
    def around(function):
        return lambda x: function(x) * 2

    assert graphs_of(lambda k: around(opmill.compile(multiplied(k), backend="eager"))) <= 2
