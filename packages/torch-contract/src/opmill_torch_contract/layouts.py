"""Layouts of torch's objects in memory that native code reads."""

from __future__ import annotations

from .row import Row

LAYOUTS: tuple[Row, ...] = (
    Row("tensor object", "native code does not find the tensor inside of its Python object: everything runs uncompiled", required=True),
    Row("tensor implementation", "shapes, strides and types of tensors are guarded through Python, slowly"),
)
