"""Writes docs/reference/errors.md: every numbered error and warning, what it says from the sources, why it comes up and what to do from
docs/reference/errors.toml. Fails where a number has no row there, or a row no number. ``--check`` only says whether the page is current."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from workspace import ROOT, Package, packages

PAGE = ROOT / "docs" / "reference" / "errors.md"
ROWS = PAGE.with_suffix(".toml")
REMEDIES = "messages/remedies.py"
"""Where a package keeps its remedies itself, a row for each number, as its messages say them, too."""
CODE = re.compile(r"(?:[A-Z]{2}\d{3})")
HEAD = """\
# Error codes

Every refusal has a number that stays. `fullgraph=True` raises the frontend's (`FE...`); otherwise they lead to a graph break, and
`opmill.explain` tells where, and the message itself knows more than this page: the line, the value, often a better remedy. Names in
braces are filled in. Written by `tools/error_codes.py` from the sources and from `errors.toml`.
"""


def text_of(node: ast.expr) -> str | None:
    """The text of a string in the source, ``{...}`` for what is filled in; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}" for part in node.values)  # type: ignore
    return None


def codes_of(file: Path) -> Iterator[tuple[str, str]]:
    """(code, what is said) of every call that is given a code as a string of its own or at the start of its message, and of every list of
    lines that begins so."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            parts = [*node.args, *(k.value for k in node.keywords if k.arg in ("code", "what"))]
        elif isinstance(node, ast.List):
            parts = node.elts[:1]
        else:
            continue
        texts = [text for each in parts if (text := text_of(each))]
        for position, text in enumerate(texts):
            if CODE.fullmatch(text) and isinstance(node, ast.Call):
                yield text, texts[position + 1] if position + 1 < len(texts) else ""
            elif match := re.match(r"\[?([A-Z]{2}\d{3})\]?:? (.+)", text, re.DOTALL):
                yield match[1], match[2]


def said(package: Package) -> dict[str, list[str]]:
    """What each number of a package says."""
    found: dict[str, dict[str, None]] = {}
    for file in sorted((package.folder / "src").rglob("*.py")):
        for code, what in codes_of(file):
            found.setdefault(code, {})[" ".join(what.split()).replace("`", "'")] = None
    return {code: list(filter(None, whats)) for code, whats in sorted(found.items())}


def own_remedies(package: Package) -> dict[str, str]:
    """The rows of the package's own table of remedies."""
    found: dict[str, str] = {}
    for file in (package.folder / "src").glob(f"*/{REMEDIES}"):
        tree, names = ast.parse(file.read_text()), {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                names[node.targets[0].id] = text_of(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    text = names.get(value.id) if isinstance(value, ast.Name) else text_of(value)
                    if isinstance(key, ast.Constant) and text is not None:
                        found[key.value] = f"{text[0].upper()}{text[1:]}."
    return found


def section(code: str, says: list[str], row: Mapping[str, str]) -> str:
    lines = [f"### {code}\n", f"{row['why']}\n"]
    if says:
        lines += ["Says: " + "; ".join(f"`{each}`" for each in says) + ".\n"]
    return "\n".join([*lines, f"For example: {row['example']}.\n", f"**What to do:** {row['remedy']}\n"])


def page() -> str:
    """Raises SystemExit where rows and numbers do not fit each other."""
    rows = tomllib.loads(ROWS.read_text())
    own = {code: text for package in packages().values() for code, text in own_remedies(package).items()}
    owners: dict[str, str] = {}
    says: dict[str, list[str]] = {}
    for package in packages().values():
        for code, texts in said(package).items():
            owners.setdefault(code, package.name)
            says.setdefault(code, []).extend(texts)
    told = {code: {**rows.get(code, {}), **({"remedy": own[code]} if code in own else {})} for code in says}
    lacking = [f"{code} ({key})" for code, row in told.items() for key in ("why", "example", "remedy") if not row.get(key)]
    twice = [f"{code} (remedy, which stands in {REMEDIES})" for code in own if "remedy" in rows.get(code, {})]
    gone = [f"{code}, which nothing says" for code in rows.keys() - says.keys()]
    if wrong := [f"lacks {each}" for each in lacking] + [f"has {each}" for each in sorted(twice + gone)]:
        raise SystemExit(f"{ROWS.relative_to(ROOT)} " + ", ".join(wrong))
    parts = [HEAD]
    for name in dict.fromkeys(owners.values()):
        parts += [f"## {name}\n", *(section(code, says[code], told[code]) for code in sorted(says) if owners[code] == name)]
    return "\n".join(parts)


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text() == text
        if not current:
            print(f"{PAGE.relative_to(ROOT)} is not what the sources say: run tools/error_codes.py")
        return not current
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
