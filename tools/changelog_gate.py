"""Fails unless every package's CHANGELOG has a section for its version, with at least one entry."""

from __future__ import annotations

import re
import sys

from workspace import Package, packages


def entry_of(package: Package) -> str | None:
    """The text of the section of the package's version; None where there is no such section."""
    text = (package.folder / "CHANGELOG.md").read_text()
    match = re.search(rf"^## {re.escape(package.version)}\b.*?$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1] if match else None


def main() -> int:
    failed = False
    for package in packages().values():
        entry = entry_of(package)
        if entry is None or not re.search(r"^- \S", entry, re.MULTILINE):
            print(f"{package.name}: CHANGELOG.md says nothing of version {package.version}")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
