"""How a contraction is cut into blocks that stay in the caches: the numbers that ``core.h`` is given."""

from __future__ import annotations

from dataclasses import dataclass

from .match import Contraction
from .window import Window

_DEPTH = 144
"""Terms of the sums in one pass, about: a panel of three vectors then fills two thirds of a first-level cache of 32 KiB."""
_POINTS = 224
"""Points of a block at most: with ``_DEPTH``, a quarter of a second-level cache of 512 KiB."""
_SCRATCH = 1 << 15
_SUMS = 1 << 16
"""Most elements of a block, and of the sums of one pass over rows; all of it is on the stack."""


_STAGED = 6144
"""Elements of a channel that are laid out at a time, about: three quarters of a first-level cache of 32 KiB."""


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
    taps = w.lines.taps * w.columns.taps
    depth = w.channels * taps
    passes = min(w.channels, max(1, round(depth / _DEPTH)))
    channels = -(-w.channels // passes)
    lines, columns = _block(w, max(3 * lanes, min(_POINTS, _SCRATCH // (channels * taps))), lanes)
    pitch = _up(lines * columns, lanes)
    rows = min(max(12, _SUMS // pitch // 12 * 12), _up(found.rows, 12))
    direct = w.lines.taps == w.lines.points == w.columns.taps == w.columns.stride == 1 and w.lines.pad == w.columns.pad == 0
    fields = _fields(found, lines, columns, lanes) | {"channels_a_pass": channels, "rows_a_pass": rows, "pitch": pitch, "direct": int(direct)}
    count = -(-w.lines.points // lines) * -(-w.columns.points // columns)
    return Blocks(fields, count * w.images, pitch, depth)


def stencil_blocks_of(found: Contraction, lanes: int) -> Blocks:
    """The same where each row has its own source: a block is some lines of one channel."""
    w = found.window
    wide = w.columns.points * w.columns.stride + w.columns.taps * w.columns.dilation + 2 * lanes
    fit = (_STAGED // wide - w.lines.taps * w.lines.dilation) // w.lines.stride
    lines, columns = _block(w, max(4 * lanes, min(_POINTS * 8, max(fit, 1) * w.columns.points)), lanes)
    fields = _fields(found, lines, columns, lanes) | {"pitch": lines * columns, "channel_step": found.b_row_step}
    return Blocks(fields, w.images, lines * columns, w.lines.taps * w.columns.taps)


def _block(w: Window, most: int, lanes: int) -> tuple[int, int]:
    """Lines and columns of a block of about ``most`` points: whole lines where one fits, blocks of about equal size."""
    if w.columns.points <= most:
        down = -(-w.lines.points // max(1, most // w.columns.points))
        return -(-w.lines.points // down), w.columns.points
    return 1, _up(-(-w.columns.points // -(-w.columns.points // most)), lanes)


def _fields(found: Contraction, block_lines: int, block_columns: int, lanes: int) -> dict[str, int]:
    w, lines, columns = found.window, found.window.lines, found.window.columns
    return {
        "rows": found.rows, "row_step": found.row_step,
        "channels": w.channels, "tap_lines": lines.taps, "tap_columns": columns.taps,
        "height": lines.size, "width": columns.size, "channel_step": w.channel_step, "line_step": w.line_step,
        "stride_h": lines.stride, "stride_w": columns.stride, "dilation_h": lines.dilation, "dilation_w": columns.dilation,
        "pad_h": lines.pad, "pad_w": columns.pad,
        "images": w.images, "image_step": w.image_step, "out_lines": lines.points, "out_width": columns.points,
        "block_lines": block_lines, "block_columns": block_columns,
        "channels_a_pass": 0, "rows_a_pass": 0, "pitch": 0,
        "staged_lines": (block_lines - 1) * lines.stride + (lines.taps - 1) * lines.dilation + 1,
        "staged_width": block_columns + (columns.taps - 1) * columns.dilation // columns.stride + 1 + lanes,
        "direct": 0,
    }  # fmt: skip
