"""Errors of this package, numbered."""

from __future__ import annotations


class GuardError(Exception):
    """``number`` (``GU001`` ...) says which; the text says what, where, why and what to do."""

    def __init__(self, number: str, *, what: str, where: str = "", why: str, hint: str = "") -> None:
        self.number, self.what, self.where, self.why, self.hint = number, what, where, why, hint
        place = f" ({where})" if where else ""
        advice = f" {hint}" if hint else ""
        super().__init__(f"[{number}] {what}{place}: {why}{advice}")


# GU001  a value that is no constant in Equals
# GU002  a guard on a local that the function does not have
# GU003  a class that is no guard, or a guard kind without a file in kinds/
# GU004  a guard that cannot be written as data
# GU005  a guard that does not hold for the values it was made from
