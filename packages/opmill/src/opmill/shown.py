"""Text that shows itself: printed as it is, at a prompt without quotes, in a notebook with its lines kept."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Shown(str):
    """A string whose ``repr`` is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{html.escape(str(self))}</pre>'


class InNotebooks:
    """What has a text of several lines for people: a notebook shows that, and not the data that it is."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return Shown(str(self))._repr_html_()


def shown(parts: Iterable[str]) -> Shown:
    """The parts, one below the other."""
    return Shown("\n".join(parts))
