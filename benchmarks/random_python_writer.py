"""How random Python programs are written: names with their kinds, expressions of a kind, statements, blocks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from random_python_texts import ERRORS, EXPRESSIONS, HANDLED, SPECIAL_USES, STATEMENTS

ARGUMENTS = re.compile(r"\b(?:x|n|items|mapping|word)\b(?!=|')")
SIMPLE = ("int", "int", "int", "str", "bool", "float", "list", "list", "dict", "set", "tuple", "tensor")


@dataclass
class Class:
    """A class of the program: what can be done with its objects."""

    name: str
    attributes: dict[str, str]
    methods: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Name -> what comes back, and the kinds of the parameters."""
    special: set[str] = field(default_factory=set)


@dataclass
class Scope:
    """The names of a function, with their kinds; ``kind`` is "program", "function", "generator" or "coroutine"."""

    kind: str
    names: dict[str, str] = field(default_factory=dict)
    outer: Scope | None = None
    returns: str = "int"
    declared: set[str] = field(default_factory=set)


class Writer:
    """Writes one program. ``size`` is how many statements its functions may have together."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.indent = 0
        self.number = 0
        self.classes: dict[str, Class] = {}
        self.scope = Scope("program")
        self.loops = 0
        self.starred = False
        """In a handler of groups, which nothing leaves."""
        self.left = self.random.choice((8, 14, 22, 34))
        self.breaking = self.random.choice((0.0, 0.05, 0.15, 0.3))
        """How often a statement, or an expression, is a break."""
        self.favoured = self.random.sample(sorted(self.blocks()), 4)
        self.watching = self.random.random() < 0.08
        """Whether it is seen when objects die."""

    # --- text -----------------------------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The names of a block are not known after it: it may not run."""
        self.say(head)
        self.indent += 1
        known = dict(self.scope.names)
        yield
        if self.random.random() > 0.05:  # else: a name that may not be bound
            for name in set(self.scope.names) - set(known):
                del self.scope.names[name]
        self.indent -= 1

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def fill(self, text: str, depth: int = 2) -> str:
        """A text in which ``<int>`` and the like stand for expressions of that kind, ``<v:list>`` for a variable."""
        while "<" in text and (start := self._place(text)) >= 0:
            end = text.index(">", start)
            wanted = text[start + 1 : end]
            made = self.variable(wanted[2:]) if wanted.startswith("v:") else self.expression(wanted, depth - 1)
            text = text[:start] + made + text[end + 1 :]
        return text

    @staticmethod
    def _place(text: str) -> int:
        found = -1
        while (found := text.find("<", found + 1)) >= 0:
            end = text.find(">", found)
            if end > 0 and text[found + 1 : end].removeprefix("v:") in EXPRESSIONS:
                return found
        return -1

    # --- expressions ----------------------------------------------------------------------------------------------------------------

    def visible(self) -> dict[str, str]:
        found: dict[str, str] = {}
        scope: Scope | None = self.scope
        while scope:
            found = {**scope.names, **found}
            scope = scope.outer
        return found

    def named(self, kind: str) -> list[str]:
        return [name for name, each in self.visible().items() if each == kind]

    def variable(self, kind: str) -> str:
        """A variable of a kind; one that is new where there is none, bound by a statement before."""
        names = self.named(kind)
        if names:
            return self.random.choice(names)
        return self.expression(kind, 0)

    def expression(self, kind: str, depth: int = 2) -> str:
        names = self.named(kind)
        if names and self.chance(0.45 if depth > 0 else 0.75):
            return self.random.choice(names)
        if depth > 0 and kind in ("int", "str", "list") and self.chance(self.breaking / 3):
            return f"B({self.expression(kind, depth - 1)})"
        if depth > 0 and self.chance(0.25) and (call := self.call(kind, depth)):
            return call
        texts = [each for each in EXPRESSIONS[kind] if self.bound(each)]
        return self.fill(self.random.choice(texts if depth > 0 else texts[:3]), depth) if depth > -3 else texts[0]

    def bound(self, text: str) -> bool:
        """Whether what a text names of the program's arguments is there."""
        known = self.visible()
        return all(name in known for name in ARGUMENTS.findall(text))

    def call(self, kind: str, depth: int) -> str | None:
        """A call of one of the program's functions, methods or attributes that gives this kind."""
        found: list[Callable[[], str]] = []
        for name, each in self.visible().items():
            if each.startswith(f"function:{kind}("):
                kinds = [k for k in each[each.index("(") + 1 : -1].split(",") if k]
                found.append(lambda name=name, kinds=kinds: f"{name}({self.arguments(kinds, depth)})")  # type: ignore[misc]
            elif each in self.classes:
                made = self.classes[each]
                for attribute, its in made.attributes.items():
                    if its == kind:
                        found.append(lambda name=name, attribute=attribute: f"{name}.{attribute}")  # type: ignore[misc]
                for method, (gives, kinds) in made.methods.items():
                    if gives == kind:
                        found.append(lambda n=name, m=method, k=kinds: f"{n}.{m}({self.arguments(k, depth)})")  # type: ignore[misc]
                for special, gives, text in SPECIAL_USES:
                    if special in made.special and gives == kind:
                        found.append(lambda name=name, text=text: self.fill(text.replace("O", name), depth - 1))  # type: ignore[misc]
        return self.random.choice(found)() if found else None

    def arguments(self, kinds: list[str], depth: int) -> str:
        given = [self.expression(kind, depth - 1) for kind in kinds]
        if given and self.chance(0.04):
            given.pop()  # a call that is wrong
        if given and self.chance(0.1):
            given[-1] = f"*[{given[-1]}]"
        return ", ".join(given)

    def made(self, name: str) -> str:
        return f"{name}({self.arguments(['int', 'list'], 2)})"

    # --- statements -----------------------------------------------------------------------------------------------------------------

    def body(self, most: int, ends: Callable[[], None] | None = None) -> None:
        """Statements of a block; ``ends`` may say a last one."""
        before = len(self.lines)
        for _ in range(self.random.randint(1, most)):
            if self.left <= 0:
                break
            self.left -= 1
            self.statement()
        if ends and (self.chance(0.3) or len(self.lines) == before):
            ends()
        if len(self.lines) == before:
            self.say("pass")

    def statement(self) -> None:
        if self.chance(self.breaking):
            self.say(self.fill(self.random.choice(("B()", "B(<int>)", "B(<v:list>)", "B(<v:dict>, <str>)", "B(<tensor>)", "B(LOG)"))))
            return
        blocks = self.blocks()
        if self.indent < 6 and self.chance(0.45):
            name = self.random.choice(self.favoured if self.chance(0.5) else sorted(blocks))
            blocks[name]()
        elif self.chance(0.45):
            self.assign()
        else:
            self.say(self.fill(self.random.choice([each for each in STATEMENTS if self.bound(each)])))

    def blocks(self) -> dict[str, Callable[[], None]]:
        """The statements that hold others, by name."""
        return {
            "branch": self.branch, "loop": self.loop, "while": self.while_, "try": self.try_, "with": self.with_, "match": self.match,
            "outer": self.outer, "unpack": self.unpack, "del": self.delete, "raise": self.raise_,
        }  # fmt: skip

    def assign(self) -> None:
        kind = self.random.choice(SIMPLE)
        names = self.scope.names
        old = [name for name, each in names.items() if each == kind]
        value = self.expression(kind, 3)
        name = self.random.choice(old) if old and self.chance(0.5) else self.fresh(kind[0])
        if self.chance(0.05) and kind in ("int", "str"):
            self.say(f"LOG.append(({name} := {value}))")
        else:
            self.say(f"{name} = {value}")
        names[name] = kind

    def branch(self) -> None:
        with self.block(f"if {self.expression('bool')}:"):
            self.body(3)
        if self.chance(0.3):
            with self.block(f"elif {self.expression('bool')}:"):
                self.body(2)
        if self.chance(0.5):
            with self.block("else:"):
                self.body(3)

    def leave(self) -> None:
        """A statement that leaves a block."""
        kinds = ["return"] if self.scope.kind != "module" and not self.starred else []
        kinds += ["continue", "break", "break"] if self.loops else []
        kind = self.random.choice(kinds or ["pass"])
        guard = self.expression("bool", 1)
        value = (
            kind if kind != "return" else "return None" if self.scope.returns == "None" else f"return {self.expression(self.scope.returns)}"
        )
        self.say(f"if {guard}:")
        self.say(f"    {value}")

    def loop(self) -> None:
        name = self.fresh("k")
        heads = {
            f"for {name} in range({self.random.randint(0, 4)}):": "int",
            f"for {name} in <list>[:4]:": "int",
            f"for {name} in <v:list>:": "int",
            f"for {name}, v{name} in enumerate(<list>[:3], <int>):": "int",
            f"for {name}, v{name} in zip(<v:list>, <str>):": "int",
            f"for {name}, v{name} in <v:dict>.items():": "str",
            f"for {name} in <v:dict>:": "str",
            f"for {name} in <v:set>:": "int",
            f"for {name} in reversed(<v:list>):": "int",
            f"for {name} in <str>[:3]:": "str",
            f"for {name} in map(lambda q: q + 1, <v:list>):": "int",
            f"for {name} in itertools.islice(itertools.chain(<list>, <v:list>), 5):": "int",
        }
        head = self.random.choice(list(heads))
        turns = self.fresh("turns")
        self.say(f"{turns} = 0")
        self.loops += 1
        with self.block(self.fill(head)):
            self.scope.names[name] = heads[head]
            self.say(f"{turns} += 1")
            self.say(f"if {turns} > 5: break")
            self.body(3, self.leave)
        self.loops -= 1
        self.scope.names.pop(name, None)
        if self.chance(0.2):
            with self.block("else:"):
                self.body(2)

    def while_(self) -> None:
        turns = self.fresh("turns")
        self.say(f"{turns} = {self.random.randint(0, 3)}")
        self.loops += 1
        with self.block(f"while {turns} > 0{self.random.choice(('', ' and ' + self.expression('bool', 1)))}:"):
            self.say(f"{turns} -= 1")
            self.body(3, self.leave)
        self.loops -= 1
        if self.chance(0.2):
            with self.block("else:"):
                self.body(2)

    def raise_(self) -> None:
        error = self.fill(self.random.choice(ERRORS))
        cause = self.random.choice(("", "", "", f" from {self.fill(self.random.choice(ERRORS))}", " from None"))
        self.say(f"if {self.expression('bool', 1)}:")
        self.say(f"    raise {error}{cause}")

    def try_(self) -> None:
        star = self.chance(0.08)
        with self.block("try:"):
            self.body(3, None if star else self.leave)
            if self.chance(0.6):
                self.raise_()
        handled = star or self.chance(0.8)
        loops, starred = self.loops, self.starred
        if handled:
            for _ in range(self.random.choice((1, 1, 2))):
                name = self.fresh("e")
                if star:
                    self.loops, self.starred = 0, True
                with self.block(f"except{'*' * star} {self.random.choice(HANDLED)} as {name}:"):
                    self.say(f"LOG.append((type({name}).__name__, {name}.args))")
                    if self.chance(0.15):
                        self.say(f"LOG.append({name})")
                    if self.chance(0.2):
                        self.say(f"LOG.append((repr({name}.__cause__), repr({name}.__context__), {name}.__suppress_context__))")
                    if self.chance(0.1):
                        self.say(f"{name}.add_note({self.expression('str', 1)})")
                    self.body(2, None if star else self.leave)
                    if self.chance(0.12):
                        self.say("raise")
                self.loops, self.starred = loops, starred
            if self.chance(0.25):
                with self.block("else:"):
                    self.body(2)
        if not handled or self.chance(0.3):
            with self.block("finally:"):
                self.body(2, self.leave if self.chance(0.2) and not star else None)

    def with_(self) -> None:
        managers = ["Entered('m')", "Entered('s', True)", "entered(<int>)", "contextlib.suppress(ValueError, KeyError)", "torch.no_grad()"]
        managers += ["contextlib.ExitStack()", "contextlib.nullcontext(<int>)", "contextlib.closing(Entered('c'))"]
        names = [name for name, each in self.visible().items() if each in self.classes and "__enter__" in self.classes[each].special]
        managers += names * 3
        chosen = [self.fill(self.random.choice(managers)) for _ in range(self.random.choice((1, 1, 1, 2)))]
        name = self.fresh("w")
        with self.block(f"with {', '.join(chosen)}{self.random.choice(('', f' as {name}'))}:"):
            if chosen[-1] == "contextlib.ExitStack()" and self.lines[-1].endswith(f"as {name}:"):
                self.say(f"{name}.callback(LOG.append, {self.expression('int', 1)})")
                self.say(f"{name}.enter_context(Entered('x', {self.expression('bool', 1)}))")
            self.body(3, self.leave)
            if self.chance(0.3):
                self.raise_()

    def match(self) -> None:
        subject = self.random.choice(("<list>", "<dict>", "<int>", "<tuple>", "<str>", "(<int>, <str>)"))
        with self.block(self.fill(f"match {subject}:")):
            a, b = self.fresh("a"), self.fresh("b")
            cases = [
                f"case [int({a}), *{b}]:", f"case {{'a': {a}, **{b}}}:", f"case ({a}, str({b})):", "case 1 | 2 | 3:", f"case [{a}, _]:",
                f"case int({a}) if {a} > 2:", "case 'ab' | 'cd':", "case []:", f"case str({a}):", f"case [1, [{a}, *_] as {b}]:",
            ]  # fmt: skip
            for case in self.random.sample(cases, self.random.randint(1, 3)):
                with self.block(case):
                    for name in (a, b):
                        if name in case:
                            self.say(f"LOG.append({name})")
                    self.body(2)
            if self.chance(0.7):
                with self.block(f"case {self.fresh('z')}:"):
                    self.body(2)

    def unpack(self) -> None:
        a, b, c = self.fresh("i"), self.fresh("i"), self.fresh("l")
        texts = (
            f"{a}, {b}, *{c} = <list>",
            f"{a}, *{c}, {b} = <list>",
            f"({a}, {b}), {c} = (<int>, <int>), <list>",
            f"[{a}, {b}], *{c} = <list>[:2], <int>",
        )
        self.say(self.fill(self.random.choice(texts)))
        self.scope.names.update({a: "int", b: "int", c: "list"})
        if self.chance(0.3):
            self.say(f"{a}, {b} = {b}, {a}")

    def delete(self) -> None:
        names = [name for name, each in self.scope.names.items() if not each.startswith("function") and name not in self.scope.declared]
        if len(names) > 4:
            name = self.random.choice(names)
            self.say(f"del {name}")
            del self.scope.names[name]

    def outer(self) -> None:
        """Writes a global, or a variable of the function outside."""
        name = self.random.choice(("COUNT", "TEXT", "SHARED", "STATE"))
        self.say(
            {"COUNT": "bump({})", "TEXT": "retext({})", "SHARED": "SHARED[{}] = 1", "STATE": "STATE.append({})"}[name].format(
                self.expression("int")
            )
        )


__all__ = ["SIMPLE", "Class", "Scope", "Writer"]
