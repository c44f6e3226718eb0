"""Lays out a new package: new_package.py SHORT-NAME "what it does" [REQUIREMENT...] -> packages/SHORT-NAME."""

from __future__ import annotations

import sys
from pathlib import Path

from workspace import ROOT

PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "opmill-{name}"
description = "{description}"
readme = "README.md"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dynamic = ["version"]
classifiers = [
  "Programming Language :: Python :: 3.11",
  "Programming Language :: Python :: 3.12",
  "Programming Language :: Python :: 3.13",
  "Typing :: Typed",
]
dependencies = [{requirements}]

[tool.hatch.version]
path = "src/{module}/__about__.py"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
"""
CHANGELOG = """\
# Changelog of opmill-{name}

The format is [Keep a Changelog](https://keepachangelog.com); versions follow [SemVer](https://semver.org).

## 0.1.0 - unreleased

### Added

- First version.
"""
TEST = """\
import {module}


def test_has_a_version():
    assert {module}.__version__.count(".") == 2
"""


def layout(name: str, description: str, requirements: list[str]) -> dict[str, str]:
    """Path within the package -> text."""
    values = {
        "name": name,
        "module": "opmill_" + name.replace("-", "_"),
        "description": description,
        "requirements": ", ".join(f'"{each}"' for each in requirements),
    }
    source = f"src/{values['module']}"
    return {
        "pyproject.toml": PYPROJECT.format(**values),
        "LICENSE": (ROOT / "LICENSE").read_text(),
        "README.md": f"# opmill-{name}\n\n{description}.\n",
        "CHANGELOG.md": CHANGELOG.format(**values),
        f"{source}/__init__.py": f'"""{description}."""\n\nfrom .__about__ import __version__ as __version__\n',
        f"{source}/__about__.py": '__version__ = "0.1.0"\n',
        f"{source}/py.typed": "",
        "tests/test_package.py": TEST.format(**values),
    }


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    folder: Path = ROOT / "packages" / sys.argv[1]
    if folder.exists():
        print(f"{folder} is there already", file=sys.stderr)
        return 1
    for path, text in layout(sys.argv[1], sys.argv[2], sys.argv[3:]).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    print(f"wrote {folder.relative_to(ROOT)}; the sessions of nox find it by themselves")
    return 0


if __name__ == "__main__":
    sys.exit(main())
