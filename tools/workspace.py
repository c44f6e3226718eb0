"""The packages of this repository: found by globbing, read from their own pyproject.toml. Names none of them."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """One distribution: ``name`` as published, ``folder``, ``module`` as imported, ``needs``: the workspace packages it requires.

    From ``[tool.opmill]`` of its pyproject: ``torch_free``, its test folders that run without torch (``torch-free-tests``), and
    ``test_needs``, what its tests require besides pytest and hypothesis (``test-requirements``)."""

    name: str
    folder: Path
    module: str
    needs: tuple[str, ...]
    torch_free: tuple[str, ...]
    test_needs: tuple[str, ...]

    @property
    def version(self) -> str:
        about = (self.folder / "src" / self.module / "__about__.py").read_text()
        return re.search(r'__version__ = "(.+?)"', about)[1]  # type: ignore[index]


def packages(root: Path = ROOT) -> dict[str, Package]:
    """Every package by name, each after those it needs."""
    projects = {}
    for file in sorted(root.glob("packages/*/pyproject.toml")):
        settings = tomllib.loads(file.read_text())
        projects[settings["project"]["name"]] = (file.parent, settings)
    found = {name: _package(name, folder, settings, projects) for name, (folder, settings) in projects.items()}
    order = TopologicalSorter({name: package.needs for name, package in found.items()}).static_order()
    return {name: found[name] for name in order}


def _package(name: str, folder: Path, settings: dict, known: dict) -> Package:
    needs = tuple(wanted for each in settings["project"].get("dependencies", ()) if (wanted := requirement_name(each)) in known)
    [module] = (path.name for path in (folder / "src").iterdir() if (path / "__about__.py").exists())
    own = settings.get("tool", {}).get("opmill", {})
    return Package(name, folder, module, needs, tuple(own.get("torch-free-tests", ())), tuple(own.get("test-requirements", ())))


def requirement_name(requirement: str) -> str:
    """The distribution a requirement names: ``"torch>=2.11"`` -> ``"torch"``."""
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")  # type: ignore[index]


def closure(names: list[str], known: dict[str, Package]) -> list[str]:
    """``names`` and all they need, each after what it needs."""
    wanted = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name not in wanted:
            wanted.add(name)
            stack.extend(known[name].needs)
    return [name for name in known if name in wanted]


if __name__ == "__main__":
    all_packages = packages()
    for name in closure(sys.argv[1:], all_packages) if sys.argv[1:] else all_packages:
        package = all_packages[name]
        print(f"{name} {package.version}" + (f"  needs {', '.join(package.needs)}" if package.needs else ""))
