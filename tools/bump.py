"""Gives a package its next version: bump.py PACKAGE major|minor|patch.

Writes ``__about__.py`` and opens a section in the CHANGELOG. Prints the tag to make once the change has landed.
"""

from __future__ import annotations

import sys

from workspace import packages

PARTS = ("major", "minor", "patch")


def bumped(version: str, part: str) -> str:
    """``bumped("1.2.3", "minor") == "1.3.0"``."""
    numbers = [int(number) for number in version.split(".")]
    at = PARTS.index(part)
    return ".".join(map(str, [*numbers[:at], numbers[at] + 1, *[0] * (2 - at)]))


def main() -> int:
    known = packages()
    if len(sys.argv) != 3 or sys.argv[1] not in known or sys.argv[2] not in PARTS:
        print(f"{__doc__}\npackages: {', '.join(known)}", file=sys.stderr)
        return 2
    package = known[sys.argv[1]]
    old, new = package.version, bumped(package.version, sys.argv[2])
    about = package.folder / "src" / package.module / "__about__.py"
    about.write_text(about.read_text().replace(f'"{old}"', f'"{new}"'))
    changelog = package.folder / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## ", f"## {new} - unreleased\n\n### Changed\n\n## ", 1))
    print(f"{package.name}: {old} -> {new}; fill in {changelog.name}, then: git tag {package.name}-v{new}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
