"""The two packed tables of a code object: source positions and exception handlers (formats of CPython 3.11 to 3.13)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .program import Position

_NO_LOCATION, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10
_LONGEST_ENTRY = 8  # code units


def encode_positions(entries: Iterable[tuple[int, Position]], first_line: int, *, merge: bool) -> bytes:
    """Packs (code units, position) pairs into a line table; ``merge`` joins neighbours of one position (3.12 on)."""
    table = bytearray()
    line = first_line
    for units, position in _merged(entries) if merge else entries:
        while units > 0:
            now = min(units, _LONGEST_ENTRY)
            line = _encode_entry(table, now, position, line)
            units -= now
    return bytes(table)


def _merged(entries: Iterable[tuple[int, Position]]) -> Iterator[tuple[int, Position]]:
    total, current = 0, None
    for units, position in entries:
        if position == current:
            total += units
            continue
        if current is not None:
            yield total, current
        total, current = units, position
    if current is not None:
        yield total, current


def _encode_entry(table: bytearray, units: int, position: Position, line: int) -> int:
    """Appends one entry and returns the line that the next one counts from."""

    def head(code: int) -> None:
        table.append(0x80 | code << 3 | units - 1)

    lineno, end_lineno, column, end_column = position
    if lineno is None:
        head(_NO_LOCATION)
        return line
    delta = lineno - line
    if column is None or end_column is None:
        if end_lineno is None or end_lineno == lineno:
            head(_NO_COLUMNS)
            _signed(table, delta)
            return lineno
    elif end_lineno == lineno:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            head(column >> 3)
            table.append((column & 7) << 4 | end_column - column)
            return lineno
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            head(_ONE_LINE + delta)
            table += bytes((column, end_column))
            return lineno
    head(_LONG)
    _signed(table, delta)
    _unsigned(table, (end_lineno if end_lineno is not None else lineno) - lineno)
    _unsigned(table, 0 if column is None else column + 1)
    _unsigned(table, 0 if end_column is None else end_column + 1)
    return lineno


def _unsigned(table: bytearray, value: int) -> None:
    while value >= 64:
        table.append(0x40 | value & 63)
        value >>= 6
    table.append(value)


def _signed(table: bytearray, value: int) -> None:
    _unsigned(table, (-value << 1) | 1 if value < 0 else value << 1)


def encode_exceptions(entries: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """Packs (start, length, target, depth, lasti) entries, measured in code units."""
    table = bytearray()
    for start, length, target, depth, lasti in entries:
        for number, value in enumerate((start, length, target, depth << 1 | lasti)):
            chunks = [value & 63]
            while value := value >> 6:
                chunks.append(0x40 | value & 63)
            chunks.reverse()
            if number == 0:
                chunks[0] |= 0x80
            table += bytes(chunks)
    return bytes(table)


def decode_exceptions(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """Unpacks an exception table into (start, length, target, depth, lasti), measured in code units."""
    values: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if byte & 0x40:
            continue
        values.append(value)
        value = 0
        if len(values) == 4:
            start, length, target, packed = values
            yield start, length, target, packed >> 1, bool(packed & 1)
            values = []
