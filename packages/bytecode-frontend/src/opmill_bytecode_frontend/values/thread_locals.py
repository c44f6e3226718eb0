"""``threading.local``: an object whose attributes are other ones in each thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opmill_guards.source import Attr, Item

from .base import Lazy, Value
from .constant import ConstantValue
from .mapping import DictValue
from .objects import ObjectValue

if TYPE_CHECKING:
    from .base import Machine


class ThreadLocalValue(ObjectValue):
    """One of before the call. Its class reads and writes the running thread's dictionary, which ``__dict__`` gives: the memory of the
    object itself, if it has any, stays empty."""

    def has_dict(self) -> bool:
        return True

    def shows_dict(self) -> bool:
        """Its class gives it for the name, whatever else has that name."""
        return True

    def own_dict(self, vm: Machine) -> DictValue:
        return self.attrs

    @property
    def attrs(self) -> DictValue:
        if self._attrs is None:
            assert self.source is not None
            source, table = Attr(self.source, "__dict__"), self.obj.__dict__
            items: dict[object, tuple[Value, object]] = {k: (ConstantValue(k), Lazy(v, Item(source, k))) for k, v in table.items()}
            self._attrs = DictValue(items, dict, source, table)
        return self._attrs
