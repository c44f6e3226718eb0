"""How a contraction is cut into blocks that stay in the caches: the numbers that ``core.h`` is given."""

from __future__ import annotations

from dataclasses import dataclass

from .match import Contraction

_DEPTH = 144
"""Terms of the sums in one pass, about: a panel of three vectors then fills two thirds of a first-level cache of 32 KiB."""
_POINTS = 224
"""Points of a block at most: with ``_DEPTH``, a quarter of a second-level cache of 512 KiB."""
_SCRATCH = 1 << 15
_SUMS = 1 << 16
"""Most elements of a block, and of the sums of one pass over rows; all of it is on the stack."""


@dataclass(frozen=True)
class Blocks:
    """``fields`` of ``struct contraction``; ``count`` blocks of points in all images; ``depth`` terms in each sum."""

    fields: dict[str, int]
    count: int
    pitch: int
    depth: int


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def blocks_of(found: Contraction, lanes: int) -> Blocks:
    """The blocking for vectors of ``lanes`` elements. It depends on the shape alone: results are the same for any number of threads."""
    w = found.window
    lines, columns = w.lines, w.columns
    taps = lines.taps * columns.taps
    depth = w.channels * taps
    passes = min(w.channels, max(1, round(depth / _DEPTH)))
    channels = -(-w.channels // passes)
    most = max(3 * lanes, min(_POINTS, _SCRATCH // (channels * taps)))
    if columns.points <= most:
        down = -(-lines.points // max(1, most // columns.points))
        block_lines, block_columns = -(-lines.points // down), columns.points
    else:
        block_lines, block_columns = 1, _up(-(-columns.points // -(-columns.points // most)), lanes)
    pitch = _up(block_lines * block_columns, lanes)
    rows = min(max(12, _SUMS // pitch // 12 * 12), _up(found.rows, 12))
    direct = lines.taps == lines.points == columns.taps == columns.stride == 1 and lines.pad == columns.pad == 0
    fields = {
        "rows": found.rows, "row_step": found.row_step,
        "channels": w.channels, "tap_lines": lines.taps, "tap_columns": columns.taps,
        "height": lines.size, "width": columns.size, "channel_step": w.channel_step, "line_step": w.line_step,
        "stride_h": lines.stride, "stride_w": columns.stride, "dilation_h": lines.dilation, "dilation_w": columns.dilation,
        "pad_h": lines.pad, "pad_w": columns.pad,
        "images": w.images, "image_step": w.image_step, "out_lines": lines.points, "out_width": columns.points,
        "block_lines": block_lines, "block_columns": block_columns,
        "channels_a_pass": channels, "rows_a_pass": rows, "pitch": pitch,
        "staged_lines": (block_lines - 1) * lines.stride + (lines.taps - 1) * lines.dilation + 1,
        "staged_width": block_columns + (columns.taps - 1) * columns.dilation // columns.stride + 1 + lanes,
        "direct": int(direct),
    }  # fmt: skip
    blocks = -(-lines.points // block_lines) * -(-columns.points // block_columns)
    return Blocks(fields, blocks * w.images, pitch, depth)
