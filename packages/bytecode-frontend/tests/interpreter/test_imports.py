"""Imports inside captured code: what is not there is said as Python says it, and a package's own ``__getattr__`` is asked as often as plainly,
in the program's line."""

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
