"""Imports inside captured code: what is not there is said as Python says it, and a package's own ``__getattr__`` is asked as often as plainly,
in the program's line."""

import importlib
import sys
import textwrap
import types
import warnings

import pytest

from opmill_bytecode_frontend import capture

FILES = {
    "things_plain.py": "x = 1\n",
    "things_pack/__init__.py": "y = 1\n",
    "things_pack/below.py": "z = 3\n",
    "things_asked/__init__.py": """
        import warnings
        ASKED = []
        def __getattr__(name):
            if not name.startswith("__"):
                ASKED.append(name)
            if name == "old":
                warnings.warn("old is deprecated", DeprecationWarning, stacklevel=2)
                return 5
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        """,
    "things_asked/below.py": "z = 4\n",
}


@pytest.fixture(autouse=True)
def things(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    forgotten()


def forgotten():
    for name in [each for each in sys.modules if each.startswith("things_")]:
        del sys.modules[name]


def a_name_that_is_there():
    from things_plain import x as found

    return found


def a_name_that_is_not():
    try:
        from things_plain import nothing
    except ImportError:
        return "fallback"
    return nothing


def one_of_two():
    from things_plain import nothing, x

    return x, nothing


def of_a_package():
    from things_pack import nothing

    return nothing


def of_c():
    from math import nothing

    return nothing


def what_was_deleted():
    import things_plain

    things_plain.late = 2
    from things_plain import late as found

    del things_plain.late
    from things_plain import late

    return found, late


def a_module_below():
    from things_pack import below, y

    return below.z, y


def a_module_that_is_not():
    import things_pack.nothing

    return things_pack


def behind_a_break():
    print(end="")
    from things_plain import nothing

    return nothing


def asked():
    from things_asked import ASKED, below, old

    return old, list(ASKED), below.z


def asked_for_nothing():
    from things_asked import nothing

    return nothing


def asked_as_an_attribute():
    import things_asked

    return things_asked.old, getattr(things_asked, "nothing", 3), list(things_asked.ASKED)


PROGRAMS = [
    *(a_name_that_is_there, a_name_that_is_not, one_of_two, of_a_package, of_c, what_was_deleted, a_module_below, a_module_that_is_not),
    *(behind_a_break, asked, asked_for_nothing, asked_as_an_attribute),
]


def seen(function):
    """Result or error of a call, with all that an error of imports keeps, and what was warned of where."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            result = function()
        except ImportError as error:
            result = type(error), str(error), error.name, error.path, error.args, type(error.__context__)
    return result, [(str(each.message), each.filename, each.lineno) for each in heard]


@pytest.mark.parametrize("program", PROGRAMS)
def test_imports_are_pythons(program):
    plain = [seen(program) for _ in range(3)]
    forgotten()
    compiled = capture(program, "eager")
    assert [seen(compiled) for _ in range(3)] == plain


def test_a_name_that_comes_later_is_found():
    compiled = capture(a_name_that_is_not, "eager")
    assert compiled() == "fallback"
    sys.modules["things_plain"].nothing = 7
    assert compiled() == 7
    del sys.modules["things_plain"].nothing
    assert compiled() == "fallback"
    sys.modules["things_plain.nothing"] = made = types.ModuleType("things_plain.nothing")
    assert compiled() is made


def listed(module, n):
    return dir(module)


def listed_when_written_to(module, n):
    module.added = n
    found = dir(module), hasattr(module, "added")
    del module.added
    return found, dir(module)


def listed_when_made(module, n):
    made = types.ModuleType("made")
    made.added = n
    return dir(made)


@pytest.mark.parametrize("program", [listed, listed_when_written_to, listed_when_made])
def test_what_a_module_has(program):
    module, compiled = types.ModuleType("given"), capture(program, "eager")
    for n in range(3):
        setattr(module, f"name_{n}", n)
        assert compiled(module, n) == program(module, n)


def missing_whole():
    try:
        import things_later
    except ImportError:
        return "none"
    return things_later.x


def missing_below():
    try:
        import things_pack.later as found
    except ImportError:
        return "none"
    return found.x


def missing_in_a_missing_package():
    try:
        from things_later.below import x
    except ModuleNotFoundError as error:
        return error.name
    return x


def missing_from_a_package():
    try:
        from things_pack import later
    except ImportError:
        return "none"
    return later.x


def missing_relatively():
    try:
        from .later import x
    except ImportError:
        return "none"
    return x


def missing_by_function():
    try:
        return __import__("things_later").x
    except ImportError:
        return "none"


def as_a_module(tmp_path, name):
    module = types.ModuleType(name)
    module.x = 7
    if name == "things_later":
        module.__path__ = []
        as_a_module(tmp_path, "things_later.below")
    sys.modules[name] = module
    if name.startswith("things_pack."):
        sys.modules["things_pack"].later = module


def as_a_file(tmp_path, name):
    path = tmp_path / name.replace(".", "/")
    if name == "things_later":
        path.mkdir()
        (path / "__init__.py").write_text("x = 7\n")
        (path / "below.py").write_text("x = 7\n")
    else:
        path.with_suffix(".py").write_text("x = 7\n")
    importlib.invalidate_caches()


def on_a_longer_path(tmp_path, name):
    more = tmp_path / "more"
    more.mkdir()
    as_a_file(more, name) if name == "things_later" else as_a_file(tmp_path, name)
    sys.path.append(str(more))


BELOW = (missing_below, missing_from_a_package, missing_relatively)
MISSING = (missing_whole, missing_in_a_missing_package, missing_by_function, *BELOW)


@pytest.mark.parametrize("come", [as_a_module, as_a_file, on_a_longer_path])
@pytest.mark.parametrize("program", MISSING)
def test_a_module_that_comes_later_is_imported(program, come, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.import_module("things_pack")
    names = {"__name__": "things_pack.inside", "__package__": "things_pack", "__builtins__": __builtins__}
    function = types.FunctionType(program.__code__, names)
    captured = capture(function, "eager")
    for _ in range(3):
        assert captured() == function()
    come(tmp_path, "things_pack.later" if program in BELOW else "things_later")
    assert captured() == function() == 7


def test_a_module_that_is_blocked_and_let_in_again(monkeypatch):
    monkeypatch.setitem(sys.modules, "things_plain", None)
    captured = capture(a_name_that_is_there_or_not, "eager")
    assert captured() == a_name_that_is_there_or_not() == "none"
    monkeypatch.delitem(sys.modules, "things_plain")
    assert captured() == a_name_that_is_there_or_not() == 1


def a_name_that_is_there_or_not():
    try:
        from things_plain import x
    except ImportError:
        return "none"
    return x


def a_failing_module():
    try:
        import things_failing
    except ValueError:
        return "failed"
    return things_failing.x


def test_a_module_whose_code_fails_is_run_at_each_import(tmp_path):
    (tmp_path / "things_failing.py").write_text("import things_plain\nif things_plain.x < 5:\n    raise ValueError\nx = 9\n")
    captured = capture(a_failing_module, "eager")
    assert [captured() for _ in range(3)] == ["failed"] * 3
    sys.modules["things_plain"].x = 5
    assert captured() == a_failing_module() == 9
