"""Which arguments a Triton kernel writes to, from its source: those whose pointers may reach a store.

A name is followed from assignment to assignment, whatever branch it stands in; what is loaded through a pointer is a number and leads
nowhere. A call of another kernel function is looked into. Where something is not understood, every pointer that takes part in it counts as
written.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

STORING = ("store", "atomic", "inline_asm", "scatter")
"""What the name of a function of Triton's language contains that writes to memory."""
LOADING = frozenset(("load", "load_tensor_descriptor", "num_programs", "program_id", "arange", "zeros", "full"))
"""What gives numbers, not pointers."""


class Indirect(Exception):
    """The kernel makes pointers of numbers that it loads: what it writes cannot be told from its arguments."""


_OPEN = object()
"""Stands for a function that is being looked into: what its inner calls of itself write is what it writes anyway."""


def written(kernel: object) -> frozenset[str]:
    """Names of the parameters that a kernel (a decorated function) may write to; all of them where its source cannot be had. Raises
    ``Indirect``."""
    function = plain_function(kernel)
    found = _written(function, {})
    return frozenset(inspect.signature(function).parameters) if found is None else found


def plain_function(kernel: object) -> types.FunctionType:
    """The Python function under the decorators. Raises ``TypeError`` where there is none."""
    while not isinstance(kernel, types.FunctionType):
        kernel = getattr(kernel, "fn", None)
        if kernel is None:
            raise TypeError("no function of Python behind the kernel")
    return kernel


@lru_cache(256)
def _parsed(function: types.FunctionType) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _written(function: types.FunctionType, open_: dict[types.FunctionType, object]) -> frozenset[str] | None:
    tree = _parsed(function)
    if tree is None:
        return None
    parameters = list(inspect.signature(function).parameters)
    if function in open_:
        return frozenset()
    walk = _Walk(function, parameters, {**open_, function: _OPEN})
    while True:  # until loops bring nothing new
        before = {name: set(found) for name, found in walk.behind.items()}, set(walk.stored)
        walk.visit(tree)
        if (walk.behind, walk.stored) == before:
            return frozenset(walk.stored)


class _Walk(ast.NodeVisitor):
    def __init__(self, function: types.FunctionType, parameters: list[str], open_: dict[types.FunctionType, Any]) -> None:
        self.function, self.open = function, open_
        self.behind: dict[str, set[str]] = {name: {name} for name in parameters}
        """The parameters whose pointers a name may hold."""
        self.stored: set[str] = set()

    # ---- what a value may point to ---------------------------------------------------------------------------------

    def pointers(self, node: ast.AST | None) -> set[str]:
        if node is None:
            return set()
        if isinstance(node, ast.Name):
            return set(self.behind.get(node.id, ()))
        if isinstance(node, (ast.Compare, ast.Constant)):
            return set()
        if isinstance(node, ast.Call) and _last(node.func) in LOADING and self._of_triton(node.func):
            return set()
        if isinstance(node, ast.IfExp):
            return self.pointers(node.body) | self.pointers(node.orelse)
        if isinstance(node, ast.NamedExpr):
            self.bind(node.target, self.pointers(node.value))
        return set().union(*(self.pointers(child) for child in ast.iter_child_nodes(node)))

    def bind(self, target: ast.AST, found: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.behind.setdefault(node.id, set()).update(found)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr == "pointer_type":
            raise Indirect
        self.generic_visit(node)

    # ---- statements ------------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.bind(target, self.pointers(node.value))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.bind(node.target, self.pointers(node.value))
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.bind(node.target, self.pointers(node.value))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, self.pointers(node.iter))
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.bind(item.optional_vars, self.pointers(item.context_expr))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = _last(node.func)
        of_triton = self._of_triton(node.func)
        if any(part in name for part in STORING) and (of_triton or isinstance(node.func, ast.Attribute)):
            self.stored |= self._of_store(node, of_triton)
        elif not of_triton and not self._is_method(node.func):
            self._of_call(node)

    def _is_method(self, node: ast.AST) -> bool:
        """Whether it is an attribute of a value that the kernel computes: arithmetic."""
        chain = list(_chain(node))
        return isinstance(node, ast.Attribute) and (not chain or chain[0] in self.behind)

    def _of_store(self, node: ast.Call, of_triton: bool) -> set[str]:
        """The pointers that are stored to: the first argument, or the object (a descriptor) whose method it is; all of assembly's."""
        if "inline_asm" in _last(node.func):
            return self._operands(node)
        if not of_triton and isinstance(node.func, ast.Attribute):
            owner = self.pointers(node.func.value)
            if owner:
                return owner
        named = [k.value for k in node.keywords if k.arg in ("pointer", "ptr", "desc")]
        return self.pointers((*node.args, *named)[0]) if node.args or named else self._operands(node)

    def _of_call(self, node: ast.Call) -> None:
        """A call of a function of the program's: another kernel function, or something unknown."""
        callee = self._resolve(node.func)
        if isinstance(callee, type) or getattr(callee, "__module__", None) == "builtins":
            return
        try:
            function = plain_function(callee)
            bound = inspect.signature(function).bind(*node.args, **{k.arg: k.value for k in node.keywords if k.arg})
            found = _written(function, self.open)
        except TypeError:
            found = None
        if found is None or any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.stored |= self._operands(node)
            return
        for name, value in bound.arguments.items():
            if name in found:
                self.stored |= set().union(
                    *(self.pointers(v) for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, ast.AST))
                )

    def _operands(self, node: ast.Call) -> set[str]:
        return set().union(*(self.pointers(value) for value in (*node.args, *(k.value for k in node.keywords))))

    # ---- names of the function's surroundings ----------------------------------------------------------------------

    def _resolve(self, node: ast.AST) -> object:
        """The object that a name or a chain of attributes says, None where it is not known before the kernel runs."""
        chain = list(_chain(node))
        if not chain or chain[0] in self.behind:
            return None
        closure = inspect.getclosurevars(self.function)
        known = {**closure.builtins, **self.function.__globals__, **closure.nonlocals}
        value = known.get(chain[0])
        for name in chain[1:]:
            value = getattr(value, name, None)
        return value

    def _of_triton(self, node: ast.AST) -> bool:
        found = self._resolve(node)
        inner = getattr(found, "fn", getattr(found, "func", found))
        module = getattr(inner, "__module__", None) or ""
        return module.split(".")[0] == "triton" or module.startswith("torch.")


def _chain(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        inner = list(_chain(node.value))
        yield from [*inner, node.attr] if inner else []


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
