"""Numbered errors and warnings of the package."""

from collections.abc import Callable


class RuntimeCacheError(Exception):
    """An error with a stable number (``RC0xx``).

    ``what`` happened, ``where``, ``why``, and a ``hint`` on what to do about it.
    """

    def __init__(self, code: str, *, what: str, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(code)
        self.code, self.what, self.where, self.why, self.hint = code, what, where, why, hint

    def __str__(self) -> str:
        parts = [f"[{self.code}] {self.what}"]
        parts += [f"{label}: {text}" for label, text in (("at", self.where), ("why", self.why), ("hint", self.hint)) if text]
        return "; ".join(parts)


class PlanFormatError(RuntimeCacheError, ValueError):
    """The bytes or the text given are not a plan of a known format version (RC001-RC009)."""


class PlanError(RuntimeCacheError, ValueError):
    """A plan breaks a law of the format (RC010-RC029, RC080-RC083)."""


class BindError(RuntimeCacheError, RuntimeError):
    """A plan cannot be bound to these held tensors or kernels (RC030-RC049)."""


class KernelMissing(BindError):
    """A kernel that the plan names is not in the store, or was damaged; compiling again repairs it (RC031)."""


class PlanInputError(RuntimeCacheError, TypeError):
    """A call passes inputs that the plan does not take, or operators of the plan give what it does not expect (RC050-RC059). ``begun``:
    something that others see was written already, so that nothing may run a second time. ``mistaken``: where it is no error of
    the program, which is to run without the plan, what tells that it did."""

    begun = False
    mistaken: Callable[[], None] | None = None


class SizeCheckFailed(RuntimeError):
    """A size that only data tell is not what the plan was compiled for; the message has the number RC059. ``begun``, ``mistaken``: as
    above."""

    begun = False
    mistaken: Callable[[], None] | None = None


class StoreWarning(UserWarning):
    """The store goes on without what it warns of: a damaged entry, a full or read-only disk (RC060-RC069)."""


class ExecutorWarning(UserWarning):
    """The native executor is unavailable and the reference executor runs instead (RC070)."""
