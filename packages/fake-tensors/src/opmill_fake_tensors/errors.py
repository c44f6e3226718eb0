"""Numbered errors of fake-tensors."""

from __future__ import annotations


class FakeTensorError(RuntimeError):
    """A numbered refusal. ``code`` is stable and listed in the docs; ``op`` is the operator's name."""

    code = "FT000"
    why = ""

    def __init__(self, op: str, why: str = "") -> None:
        self.op = op
        super().__init__(f"{self.code}: {op}: {why or self.why}")


class DataDependent(FakeTensorError):
    """The result's value or shape depends on the data, which fake tensors do not have."""

    code = "FT001"
    why = "the result depends on the data of a tensor, not only on its shape"


class NoFakeKernel(FakeTensorError):
    """Neither torch nor this package knows what the operator's result looks like."""

    code = "FT002"
    why = "no kernel computes the shape of its result"
