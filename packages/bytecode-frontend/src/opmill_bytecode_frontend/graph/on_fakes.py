"""Operators run on fakes: what they give, what they raise and what they warn of is the program's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opmill_fake_tensors.errors import FakeTensorError, NoFakeKernel

from ..errors import Unsupported
from ..values.base import Machine
from .eager_errors import asked_of_eager, refuse_types, said_by_autograd
from .questions import UNKNOWN, is_the_programs, name_of, refused, register

if TYPE_CHECKING:
    from .recorder import Recorder


def run(recorder: Recorder, vm: Machine, function: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    """What ``function`` gives for fakes. It raises in the program what eager raises; Unsupported (FE030, FE039) where fakes cannot tell."""
    args, kwargs = list(args), dict(kwargs)
    try:
        refuse_types(function, args, kwargs)
        return recorder.said.run(vm, lambda: recorder.remembered.call(function, args, kwargs), function, args, kwargs)
    except FakeTensorError as exc:
        if isinstance(exc, NoFakeKernel) and is_the_programs(exc.op):
            raise Unsupported("FE039", f"operator {exc.op} without a fake kernel", UNKNOWN, register(exc.op)) from None
        what, why, hint = refused(name_of(function), str(exc))
        if recorder.numbers.late:
            hint += "; torch._check(...) may say what is known of a size"
        raise Unsupported("FE030", what, why, hint) from None
    except Unsupported:
        raise
    except Exception as exc:
        failure = exc.with_traceback(None)  # which knows this frame, and that its caller: nobody would let go of the program's values
    # outside of the handler: what eager raises has no context but the program's
    recorder.refused_write |= (said := said_by_autograd(failure))
    asked, real = (False, None) if said else asked_of_eager(function, args, kwargs)
    if real is None and (asked or (recorder.numbers.late and not said)):  # sizes that nobody knows yet may be what fails
        raise Unsupported("FE030", f"{name_of(function)} of a tensor", f"it fails without data ({failure}), and does not with it")
    if not said and not recorder.said.listens:
        recorder.said.ask(vm, function, args, kwargs)  # what comes before the exception
    failure = real or failure
    failure.args = tuple(a.replace("'FakeTensor'", "'Tensor'") if isinstance(a, str) else a for a in failure.args)
    vm.throw_real(failure)


__all__ = ["run"]
