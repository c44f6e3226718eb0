"""Fails where a package is not ready to be released: release_gate.py PACKAGE.

The tree has no changes, the version has no tag, the changelog's section of the version has a date and entries, and the licence lies in the
package.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from changelog_gate import entry_of
from workspace import ROOT, Package, packages


def problems(package: Package, changes: str, tags: str) -> Iterator[str]:
    """What stands in the way. ``changes``: of the tree, as git says them; ``tags``: those there are, a line each."""
    if changes.strip():
        yield "the tree has changes that are not committed"
    if f"{package.name}-v{package.version}" in tags.split():
        yield f"version {package.version} has a tag already: python tools/bump.py {package.name} minor"
    changelog = (package.folder / "CHANGELOG.md").read_text()
    if not re.search(rf"^## {re.escape(package.version)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no date for {package.version}: '## {package.version} - YYYY-MM-DD'"
    if not re.search(r"^- \S", entry_of(package) or "", re.MULTILINE):
        yield f"CHANGELOG.md says nothing of {package.version}"
    if not (package.folder / "LICENSE").exists():
        yield "there is no LICENSE in the package"


def main() -> int:
    known = packages()
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        print(f"{__doc__}\npackages: {', '.join(known)}", file=sys.stderr)
        return 2
    changes, tags = (
        subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for command in (("status", "--porcelain"), ("tag", "--list"))
    )
    found = list(problems(known[sys.argv[1]], changes, tags))
    for problem in found:
        print(f"{sys.argv[1]}: {problem}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
