"""Random Python programs as source: classes, closures, generators, exceptions, context managers, containers that change, with graph breaks.

A program is typed while it is made, so that most of its statements run; some raise, which is a result too. ``B`` stands for a function that
cannot be captured and notes what it is given, ``LOG`` for what the program itself notes. Loops are short and numbers and containers stay
small, whatever the program does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from random_python_texts import ERRORS, IMPORTS, SPECIAL, SPECIAL_STATEMENTS, SPECIAL_USES
from random_python_writer import SIMPLE, Class, Scope, Writer


class Program(Writer):
    """A program of functions, generators and classes."""

    def blocks(self) -> dict[str, Callable[[], None]]:
        own = {
            "function": self.function, "generator": self.generator, "class": self.class_, "use": self.use_generator, "lambda": self.lambda_,
            "object": self.object_,
        }  # fmt: skip
        return {**super().blocks(), **own}

    # --- functions ------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def function_scope(self, kind: str, names: dict[str, str], returns: str) -> Iterator[None]:
        inner = Scope(kind, names, self.scope, returns)
        before = self.scope, self.loops, self.starred
        self.scope, self.loops, self.starred = inner, 0, False
        yield
        self.scope, self.loops, self.starred = before

    def nonlocals(self) -> None:
        """Declares a variable of outside as one that is written."""
        outer = self.scope.outer
        if outer and outer.kind != "module" and self.chance(0.4):
            ints = [name for name, each in outer.names.items() if each == "int" and name not in outer.declared]
            if ints:
                name = self.random.choice(ints)
                self.say(f"nonlocal {name}")
                self.scope.declared.add(name)
                outer.declared.add(name)
                self.say(f"{name} += {self.random.randint(1, 3)}")

    def parameters(self, kinds: list[str]) -> tuple[str, dict[str, str]]:
        names = {self.fresh("p"): kind for kind in kinds}
        texts = list(names)
        if texts and self.chance(0.3):
            last = texts[-1]
            texts[-1] = f"{last}={self.expression(names[last], 1)}"
        if self.chance(0.2):
            rest = self.fresh("t")
            texts.append(f"*{rest}")
            names[rest] = "tuple"
            if self.chance(0.5):
                named = self.fresh("i")
                texts.append(f"{named}={self.random.randint(0, 5)}")
                names[named] = "int"
        if self.chance(0.15):
            named = self.fresh("d")
            texts.append(f"**{named}")
            names[named] = "dict"
        return ", ".join(texts), names

    def function(self) -> None:
        name, returns = self.fresh("f"), self.random.choice(SIMPLE)
        kinds = [self.random.choice(SIMPLE) for _ in range(self.random.randint(0, 2))]
        text, names = self.parameters(kinds)
        decorators = ("", "", "", "", "@decorated", "@functools.lru_cache(None)" if set(kinds) <= {"int", "str"} else "")
        if decorator := self.random.choice(decorators):
            self.say(decorator)
        with self.block(f"def {name}({text}):"):
            with self.function_scope("function", names, returns):
                self.nonlocals()
                self.body(4)
                self.say(f"return {self.expression(returns)}")
        self.scope.names[name] = f"function:{returns}({','.join(kinds)})"

    def lambda_(self) -> None:
        name, returns = self.fresh("f"), self.random.choice(SIMPLE)
        with self.function_scope("function", {"q": "int"}, returns):
            text = self.expression(returns)
        self.say(f"{name} = {self.random.choice(('', '', 'functools.partial('))}lambda q: {text}")
        if "partial(" in self.lines[-1]:
            self.lines[-1] += ")"
        self.scope.names[name] = f"function:{returns}(int)"

    def generator(self) -> None:
        name = self.fresh("g")
        text, names = self.parameters(["int"])
        with self.block(f"def {name}({text}):"):
            with self.function_scope("generator", names, "int"):
                self.nonlocals()
                for _ in range(self.random.randint(1, 3)):
                    shape = self.random.choice(("plain", "plain", "loop", "try", "with", "from", "sent"))
                    if shape == "plain":
                        self.say(f"yield {self.expression('int')}")
                    elif shape == "loop":
                        with self.block(f"for j in range({self.random.randint(1, 3)}):"):
                            self.body(1)
                            self.say("yield j")
                    elif shape == "try":
                        with self.block("try:"):
                            self.say(f"yield {self.expression('int', 1)}")
                            self.body(1)
                        with self.block(
                            f"{self.random.choice(('except ValueError:', 'finally:', 'except GeneratorExit:', 'except Exception:'))}"
                        ):
                            self.body(2)
                    elif shape == "with":
                        with self.block("with Entered('g'):"):
                            self.say(f"yield {self.expression('int', 1)}")
                    elif shape == "from":
                        self.say(
                            f"LOG.append((yield from {self.random.choice(('<list>[:3]', 'counted(<int>)', '<str>[:2]'))}))".replace(
                                "<str>", "''"
                            )
                        )
                        self.lines[-1] = self.fill(self.lines[-1])
                    else:
                        got = self.fresh("i")
                        self.say(f"{got} = (yield {self.expression('int', 1)}) or 1")
                        self.scope.names[got] = "int"
                    self.body(1)
                if self.chance(0.4):
                    self.say(f"return {self.expression('int')}")
        self.scope.names[name] = "generator"
        if self.scope.kind != "module":
            self.use_generator()

    def use_generator(self) -> None:
        made = [name for name, each in self.visible().items() if each == "generator"]
        if not made:
            return
        make = f"{self.random.choice(made)}({self.expression('int', 1)})"
        shape = self.random.choice(("list", "list", "for", "next", "send", "close", "throw", "keep", "zip", "sum", "unpack"))
        if shape == "list":
            name = self.fresh("l")
            self.say(f"{name} = list(itertools.islice({make}, 6))")
            self.scope.names[name] = "list"
        elif shape == "for":
            self.loops += 1
            with self.block(f"for k{self.number} in {make}:"):
                self.say(f"LOG.append(k{self.number})")
                self.body(2, self.leave)
            self.loops -= 1
        elif shape in ("zip", "sum", "unpack"):
            self.say(
                self.fill(
                    {
                        "zip": f"LOG.append(list(zip(<list>, {make})))",
                        "sum": f"LOG.append(max({make}, default=None))",
                        "unpack": f"LOG.append([*{make}, *<list>])",
                    }[shape]
                )
            )
        else:
            name = self.fresh("it")
            self.say(f"{name} = {make}")
            self.say(f"LOG.append(next({name}, None))")
            if shape == "send":
                self.say(f"LOG.append({name}.send({self.expression('int', 1)}))")
            elif shape == "close":
                self.say(f"LOG.append({name}.close())")
            elif shape == "throw":
                self.say(f"LOG.append({name}.throw({self.fill(self.random.choice(ERRORS))}))")
            else:
                self.body(2)
                self.say(f"LOG.append({self.random.choice((f'next({name}, None)', name, f'list({name})'))})")

    # --- classes --------------------------------------------------------------------------------------------------------------------

    def class_(self) -> None:
        name = self.fresh("C")
        bases = [each for each in self.classes if each in self.visible()]
        base = self.classes[self.random.choice(bases)] if bases and self.chance(0.4) else None
        made = Class(name, {"a": "int", "b": "list"}, dict(base.methods) if base else {}, set(base.special) if base else set())
        if base:
            made.attributes.update(base.attributes)
        slots = self.chance(0.15)
        with self.block(f"class {name}{f'({base.name})' if base else ''}:"):
            if slots:
                self.say("__slots__ = ('a', 'b')" if base is None else "__slots__ = ()")
            else:
                self.say(f"total = {self.random.randint(0, 9)}")
                made.attributes["total"] = "int"
                if self.chance(0.2):
                    self.say("checked = Checked()")
                    made.attributes["checked"] = "int"
            with self.block("def __init__(self, a, b=None):"):
                with self.function_scope("function", {"a": "int", "b": "list"}, "None"):
                    self.say("super().__init__(a, b)" if base else "self.a, self.b = a, [a] if b is None else b")
                    self.body(1)
            for _ in range(self.random.randint(0, 2)):
                self.method(made)
            for special, lines in self.random.sample(SPECIAL, self.random.randint(1, 4)):
                made.special.add(special)
                for line in lines:
                    self.say(self.fill(line.replace("C0", name)))
            if self.watching and self.chance(0.5):
                self.say("def __del__(self): LOG.append('del')")
        self.classes[name] = made
        self.scope.names[name] = "class"
        if self.scope.kind == "module":
            self.say(f"{name.lower()} = {name}(2, [3, 1])")
            self.scope.names[name.lower()] = name
        else:
            self.object_()

    def method(self, made: Class) -> None:
        name, returns = self.fresh("m"), self.random.choice(SIMPLE)
        kinds = [self.random.choice(SIMPLE) for _ in range(self.random.randint(0, 2))]
        text, names = self.parameters(kinds)
        kind = self.random.choice(("", "", "", "@classmethod", "@staticmethod", "@property"))
        first = {"": "self, ", "@classmethod": "cls, ", "@staticmethod": "", "@property": "self"}[kind]
        if kind:
            self.say(kind)
        with self.block(f"def {name}({first}{'' if kind == '@property' else text}):"):
            with self.function_scope("function", {} if kind == "@property" else names, returns):
                if first.startswith("self") and self.chance(0.6):
                    self.say("self.a += 1")
                self.body(2)
                self.say(f"return {self.expression(returns)}")
        if kind == "@property":
            made.attributes[name] = returns
        else:
            made.methods[name] = (returns, kinds)

    def program(self) -> str:
        module = self.scope = Scope("module")
        for _ in range(self.random.randint(0, 3)):
            self.random.choice((self.function, self.class_, self.generator))()
        arguments = {"x": "tensor", "n": "int", "items": "list", "mapping": "dict", "word": "str"}
        with self.block("def program(x, n, items, mapping, word):"):
            with self.function_scope("program", dict(arguments), "tuple"):
                self.left = max(self.left, 6)
                self.body(10)
                while self.left > 4:
                    self.body(6)
                names = [name for name, each in self.scope.names.items() if each != "class"]
                chosen = self.random.sample(names, min(len(names), 6))
                self.say(f"return {', '.join(chosen)}, x + n")
        self.scope = module
        return IMPORTS + "\n".join(self.lines) + "\n"

    def object_(self) -> None:
        found = [each for each in self.classes if each in self.visible()]
        if not found:
            return self.class_()
        made = self.classes[self.random.choice(found)]
        names = self.named(made.name)
        if not names or self.chance(0.3):
            name = self.fresh("o")
            self.say(f"{name} = {self.made(made.name)}")
            self.scope.names[name] = made.name
            return None
        name = self.random.choice(names)
        attribute, kind = self.random.choice(list(made.attributes.items()))
        uses = [f"{name}.{attribute} = <{kind}>", f"{name}.{attribute} += <{kind}>" if kind in ("int", "list") else "pass"]
        uses += [
            f"setattr({name}, {attribute!r}, <{kind}>)",
            f"LOG.append(getattr({name}, 'zz', <int>))",
            f"LOG.append({name}.{attribute})",
        ]
        uses += [f"del {name}.{attribute}" if self.chance(0.2) else "pass", f"LOG.append({name}.missing)" if self.chance(0.2) else "pass"]
        uses += [text.replace("O", name) for special, _, text in SPECIAL_STATEMENTS if special in made.special]
        uses += [f"LOG.append({self.fill(t.replace('O', name))})" for special, _, t in SPECIAL_USES if special in made.special]
        if self.watching:
            uses += [f"WATCHED.append(weakref.ref({name}))", "LOG.append([w() is None for w in WATCHED])", f"STATE.append({name})"] * 2
        uses += [f"LOG.append({name}.{m}({self.arguments(k, 2)}))" for m, (_, k) in made.methods.items()]
        self.say(self.fill(self.random.choice(uses)))
        return None


def random_python(seed: int) -> str:
    """The source of a program; it defines ``program(x, n, items, mapping, word)``."""
    return Program(seed).program()
