"""The reference has all that there is: public names, options, variables of the environment, topics, counters, commands; and the site all pages."""

import ast
import importlib
import inspect
import re
import sys
import types
from pathlib import Path

import pytest

import opmill
from opmill import cli, logs, metrics

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="needs the sources beside the tests")
PACKAGES = sorted(path.parent.name for path in (ROOT / "packages").glob("*/src/*/__about__.py"))


def page(name: str) -> str:
    return (DOCS / name).read_text()


def sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "packages").glob("*/src/**/*.py"))


def public(module: types.ModuleType) -> set[str]:
    """Names that a package offers itself: those that it imports as they are called."""
    return set(re.findall(r"import (\w+) as \1\b", Path(module.__file__ or "").read_text())) - {"__version__"}


def documented() -> set[str]:
    """Names behind ``:::`` on the pages of the reference, which mkdocstrings writes out."""
    found = re.findall(r"^::: (\S+)$", page("reference/api.md") + page("reference/packages.md"), re.MULTILINE)
    return {name.rpartition(".")[2] for name in found}


def said(found: object) -> bool:
    """Whether a class or function says what it is; native ones do so in their stubs. Other objects need not."""
    if not callable(found) or inspect.getdoc(found):
        return True
    stub = Path(sys.modules[found.__module__].__file__ or "").parent / "_native.pyi"
    nodes = ast.parse(stub.read_text()).body
    return any(isinstance(node, ast.ClassDef) and node.name == found.__name__ and ast.get_docstring(node) for node in nodes)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_is_in_the_reference_with_a_docstring(package: str) -> None:
    module = importlib.import_module(package)
    names = public(module)
    assert not names - documented(), f"docs/reference lacks {sorted(names - documented())}"
    assert not [name for name in names if not said(getattr(module, name))]


def test_what_the_reference_names_is_there_and_has_a_docstring() -> None:
    for name in re.findall(r"^::: (\S+)$", page("reference/api.md") + page("reference/packages.md"), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        assert said(found), name


def test_members_of_what_the_reference_names_have_docstrings() -> None:
    """Of a class mkdocstrings writes out each method and property."""
    lacking = []
    for name in re.findall(r"^::: (\S+)$", page("reference/api.md") + page("reference/packages.md"), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        members = vars(found) if isinstance(found, type) else {}
        kinds = (types.FunctionType, property, staticmethod, classmethod)
        own = (key for key, value in members.items() if not key.startswith("_") and isinstance(value, kinds))
        lacking += [f"{name}.{key}" for key in own if not inspect.getdoc(getattr(found, key))]
    assert not lacking


def test_each_public_definition_of_opmill_has_a_docstring() -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    lacking = []
    for file in (ROOT / "packages" / "opmill" / "src").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            overloads = any("overload" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))
            if isinstance(node, kinds) and not node.name.startswith("_") and not overloads and not ast.get_docstring(node):
                lacking.append(f"{file.name}:{node.lineno} {node.name}")
    assert not lacking


def test_options_and_modes() -> None:
    text = page("reference/options.md")
    for name, (default, _) in opmill.list_options().items():
        assert re.search(rf"^\| `{name}` \| {re.escape(str(default))} \|", text, re.MULTILINE), name
    assert all(f"`{mode}`" in text for mode in opmill.list_modes())


@pytest.mark.parametrize("name", sorted(set(re.findall(r"OPMILL_[A-Z]+(?:_[A-Z]+)*", sources() if DOCS.is_dir() else ""))))
def test_variables_of_the_environment(name: str) -> None:
    assert f"| `{name}` |" in page("reference/environment.md")


def test_topics_and_counters() -> None:
    text = page("reference/environment.md")
    for name, what in logs.TOPICS.items():
        assert re.search(rf"^\| `{name}` \| (info|debug) \| {re.escape(what)} \|$", text, re.MULTILINE), name
        assert f"| `{name}` | {what} |" in page("guides/troubleshooting.md")
    for name, what in metrics.COUNTED.items():
        assert f"| `{name}` | {what} |" in text


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    [names] = re.findall(r"\{([a-z,]+)\}", capsys.readouterr().out)[:1]
    assert names.split(",")
    assert all(f"`opmill {name}" in page("reference/environment.md") for name in names.split(","))


def test_each_page_is_on_the_site() -> None:
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} == listed


def test_each_mark_names_a_test_that_there_is():
    """The last column of the table: a file, a test of ``test_marks.py``, or one of its programs."""
    folder = ROOT / "packages" / "bytecode-frontend" / "tests" / "interpreter"
    text = (folder / "test_marks.py").read_text()
    rows = [row.split("|")[1:-1] for row in page("reference/marks.md").splitlines() if row.startswith("| `")]
    assert len(rows) > 15
    for mark, _, tests in rows:
        names = re.findall(r"`([^`]+)`", tests)
        assert names, mark
        for name in names:
            if name.endswith(".py"):
                assert (folder / name).is_file() or (ROOT / name).is_file(), name
            else:
                assert f"def {name}(" in text or f'    "{name}": (' in text, name
