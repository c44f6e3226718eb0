"""Numbered refusals of the frontend. FE0xx: symbolic interpretation; FE1xx: bytecode, resume functions, frame evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .messages.remedies import REMEDIES

if TYPE_CHECKING:
    from .messages.excerpt import Span


class CaptureWarning(UserWarning):
    """The program runs and its results are right, but a function is not captured any more (FE09x)."""


class Unsupported(Exception):
    """Code that cannot be captured: ``code`` (``FE...``), ``what`` was met, ``why`` that stops the capture, ``hint`` for the user,
    ``where`` (``file:line``), ``stack``: (file, line, function) of the frames being captured there, innermost first; ``spans``: the
    expression in each of them, as ``co_positions`` has it; ``turns``: whether the program's own frame is inside of a loop there; ``place``:
    the place of the capture that the graph should end before, where that is not the latest; ``whole``: no graph may come before it, the
    function runs as it is from its beginning. With ``fullgraph=True`` the user sees it; otherwise it leads to a graph break."""

    def __init__(
        self, code: str, what: str, why: str = "", hint: str = "", where: str = "", place: int | None = None, whole: bool = False
    ) -> None:
        super().__init__(code, what, why, hint, where)
        self.code = code
        self.what = what
        self.why = why
        self.hint = hint or REMEDIES.get(code, "")
        self.where = where
        self.place = place
        self.whole = whole
        self.asked = False
        """Whether the program asks for an error here, by ``torch._dynamo.error_on_graph_break``."""
        self.stack: tuple[tuple[str, int, str], ...] = ()
        self.spans: tuple[Span, ...] = ()
        self.turns = False
        self._known_users = False

    def passes(self, file: str, line: int, function: str, span: Span, turns: bool, users: bool) -> None:
        """Notes a frame that the refusal comes through. ``where`` is the line of the program, not one of a library that it calls."""
        inside = self.where and any(self.where == f"{known}:{at}" for known, at, _ in self.stack) and not self._known_users
        if not self.where or (users and inside):
            self.where = f"{file}:{line}"
        if users and not self._known_users:
            self._known_users, self.turns = True, turns
        self.stack += ((file, line, function),)
        self.spans += (span,)

    def __str__(self) -> str:
        parts = [f"{self.code}: {self.what}"]
        if self.where:
            parts.append(f"  at: {self.where}")
        if self.why:
            parts.append(f"  why: {self.why}")
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        from .messages.excerpt import excerpt  # needs torch, which who asks for bytecode alone may lack

        parts += excerpt(self.stack, self.spans)
        return "\n".join(parts)


class NotYet(Exception):
    """The call has to run as it is before one can be captured: modules have parameters whose sizes their first input tells."""
