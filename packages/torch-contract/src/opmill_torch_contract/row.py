"""A row of the contract: one thing of torch's that is not public and that opmill relies on."""

from __future__ import annotations

from msgspec import Struct

Version = tuple[int, int]


class Row(Struct, frozen=True):
    """``name``: a dotted name, or a symbol of a library. ``lost``: what does not work, or works slower, without it. ``required``: nothing
    works without it. ``since``, ``until``: first and last version of torch that has it, where that is not all that are supported."""

    name: str
    lost: str
    required: bool = False
    since: Version | None = None
    until: Version | None = None

    def expected(self, version: Version) -> bool:
        """Whether this version of torch has it, as far as is known."""
        return (self.since is None or version >= self.since) and (self.until is None or version <= self.until)


def rows(lost: str, names: str, *, required: bool = False, since: Version | None = None, until: Version | None = None) -> tuple[Row, ...]:
    """A row for each of the names, which are divided by spaces, all with the same consequences."""
    return tuple(Row(name, lost, required, since, until) for name in names.split())
