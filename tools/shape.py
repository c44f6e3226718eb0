"""Fails where the tree is hard to read or known to break: oversized files and functions, import cycles, imports against the layers,
decoders made late, devices by name outside of their folders, types left unchecked, definitions that say nothing of themselves,
packages that build their native parts in different ways.

usage: shape.py [ROOT]. Function-level imports count. Who may import whom among the packages is what their pyproject.toml declares; the
layers of torch that no package may import are in FORBIDDEN.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from workspace import ROOT, Package, packages

FILE_LINES = 600
FUNCTION_LINES = 100
UNCHECKED = 60
"""Lines of all packages together that mypy is told to leave alone."""
UNTYPED = {"opmill_bytecode_frontend": 300}
"""Lines that say ``Any``, imports aside, of packages whose values are mostly objects of programs."""
SAYS_ANY = re.compile(r"(?!\s*(?:from|import)\s).*\bAny\b")
DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu")
BY_TRAIT = ("opmill_graph_ir", "opmill_runtime_cache")
"""Packages that know devices by their traits; what is true of one alone stands in ``runtime_cache/devices``."""
FORBIDDEN = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.partitioners")


@dataclass(frozen=True)
class Module:
    name: str
    file: Path
    tree: ast.Module
    is_package: bool


def modules_of(package: Package) -> list[Module]:
    source = package.folder / "src"
    found = []
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found.append(Module(".".join(parts[:-1] if is_package else parts), file, ast.parse(file.read_text()), is_package))
    return found


def imports_of(module: Module, running: bool = False) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a module imports, relative imports resolved; ``from a import b`` gives ``a`` and ``a.b``.
    ``running``: without what stands under ``if TYPE_CHECKING``."""
    for node in _running(module.tree) if running else ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = module.name.split(".")
                up = up[: len(up) - node.level + module.is_package]
                base = ".".join([*up, base] if base else up)
            yield node.lineno, base
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _running(child)


def sizes(module: Module) -> Iterator[str]:
    lines = len(module.file.read_text().splitlines())
    if lines > FILE_LINES:
        yield f"{module.file}: {lines} lines (at most {FILE_LINES})"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1  # type: ignore[operator]
            if length > FUNCTION_LINES:
                yield f"{module.file}:{node.lineno}: function {node.name} has {length} lines (at most {FUNCTION_LINES})"


def native_sizes(package: Package) -> Iterator[str]:
    for file in sorted(file for file in (package.folder / "src").rglob("*") if file.suffix in (".cpp", ".h")):
        lines = len(file.read_text().splitlines())
        if lines > FILE_LINES:
            yield f"{file}: {lines} lines (at most {FILE_LINES})"


def unchecked(everything: Iterable[Package]) -> Iterator[str]:
    """Too many lines with ``type: ignore``: better types, or a cast at the one place where a value comes in, say more."""
    files = [file for package in everything for file in (package.folder / "src").rglob("*.py")]
    count = sum("# type: ignore" in line for file in files for line in file.read_text().splitlines())
    if count > UNCHECKED:
        yield f"{count} lines with `type: ignore`, {UNCHECKED} at most"


def untyped(everything: Iterable[Package]) -> Iterator[str]:
    """Too many lines with ``Any``: ``object`` is the type of what a program made, a class or a protocol that of what is known of it."""
    for package in everything:
        for name, most in UNTYPED.items():
            files = (package.folder / "src" / name).rglob("*.py")
            count = sum(bool(SAYS_ANY.match(line)) for file in files for line in file.read_text().splitlines())
            if count > most:
                yield f"{name}: {count} lines with `Any`, {most} at most"


def undocumented(modules: Iterable[Module]) -> Iterator[str]:
    """Public functions and classes of modules without a docstring: what it takes and gives, in which units, and what it raises. Of an
    overloaded function the last one has it."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, kinds) and not node.name.startswith("_") and ast.get_docstring(node, clean=False) is None:
                if not any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
                    yield f"{module.file}:{node.lineno}: {node.name} has no docstring"


def hooks(everything: Iterable[Package]) -> Iterator[str]:
    """A source distribution holds its own build hook, so each package with native code has one; they are one text."""
    found = [file for package in everything if (file := package.folder / "hatch_build.py").exists()]
    for file in found[1:]:
        if file.read_text() != found[0].read_text():
            yield f"{file}: not what {found[0]} is: change all of them together"


def layering(module: Module, package: Package, everything: dict[str, Package]) -> Iterator[str]:
    allowed = {package.module, *(everything[name].module for name in package.needs)}
    others = {each.module for each in everything.values()} - allowed
    for line, name in imports_of(module):
        if name.split(".")[0] in others:
            yield f"{module.file}:{line}: {package.name} may not import {name.split('.')[0]} (its pyproject.toml does not require it)"
        if any(name == each or name.startswith(each + ".") for each in FORBIDDEN):
            yield f"{module.file}:{line}: no package may import {name}"


def decoders(module: Module) -> Iterator[str]:
    """Decoders of msgspec that are made when they are wanted: what it keeps of a type is half done while it asks for the annotations, and
    another thread, or a child forked then, crashes by it. Made at import, nobody sees that."""
    for function in ast.walk(module.tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            if name.startswith("msgspec.") and (name.endswith(".Decoder") or any(keyword.arg == "type" for keyword in call.keywords)):
                yield f"{module.file}:{call.lineno}: {name} for a type inside of a function: make the decoder at import"


def devices(module: Module) -> Iterator[str]:
    """Names of devices in code (not in docstrings): ``"cuda"``, ``"cuda:0"``, ``tensor.is_cuda``, ``torch.cuda``."""
    package, _, rest = module.name.partition(".")
    if package not in BY_TRAIT or rest.split(".")[0] == "devices":
        return
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.partition(":")[0] in DEVICES
            and " " not in node.value
        ):
            where = f"{module.file}:{node.lineno}"
            yield f"{where}: the device {node.value!r} by name: ask for its traits (opmill_runtime_cache.devices.registry)"
        named = ("is_cuda", "is_cpu", "is_mps", "is_xpu", "is_privateuseone")
        if isinstance(node, ast.Attribute) and (node.attr in named or ast.unparse(node) in ("torch.cuda", "torch.mps", "torch.xpu")):
            yield f"{module.file}:{node.lineno}: {ast.unparse(node)} is for one device: ask for its traits, or its plug-in"


def cycles(modules: list[Module]) -> Iterator[str]:
    """Every knot of modules that import one another when they run: names of types alone (what is handed the interpreter names its class)
    make none. That a module runs its parents' ``__init__`` first is Python's, not an edge."""
    known = {module.name for module in modules}
    graph = {
        module.name: {name for _, name in imports_of(module, running=True) if name in known and not _is_ancestor(name, module.name)}
        - {module.name}
        for module in modules
    }
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            knot = error.args[1]
            yield "import cycle: " + " -> ".join(reversed(knot))
            graph[knot[1]].discard(knot[0])


def _is_ancestor(name: str, of: str) -> bool:
    return of.startswith(name + ".")


def main() -> int:
    root = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    everything = packages(root)
    complaints: list[str] = []
    all_modules: list[Module] = []
    for package in everything.values():
        modules = modules_of(package)
        all_modules += modules
        for module in modules:
            complaints += sizes(module)
            complaints += layering(module, package, everything)
            complaints += decoders(module)
            complaints += devices(module)
        complaints += cycles(modules)
        complaints += native_sizes(package)
    complaints += hooks(everything.values())
    complaints += unchecked(everything.values())
    complaints += untyped(everything.values())
    complaints += undocumented(all_modules)
    for complaint in dict.fromkeys(complaints):
        print(complaint.replace(f"{root}/", ""))
    print(f"shape: {len(everything)} packages, {len(complaints)} complaints")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
