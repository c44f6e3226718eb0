"""Results that the program wants to differentiate others by, as it says by ``requires_grad_()``: autograd takes a graph for one step,
whose results do not know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph.leaves import history, is_leaf, made_by
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from ..codegen.rebuild import Rebuilder
    from ..interpretation.machine import Interpreter


def keep_apart(vm: Interpreter, r: Rebuilder) -> None:
    """Ends the graph (FE033) before such a result is used first, where another one was computed from it."""
    shown = [value for value in r.outputs if isinstance(value, TensorValue) and value.fake.requires_grad and not is_leaf(value.fake)]
    for value in shown:
        if is_asked_for(value):
            others = [made_by(other.fake) for other in shown if other.fake is not value.fake]
            if made_by(value.fake) in set(history(others)):
                why = "the tensor leaves the captured code with another one that was computed from it, which may be differentiated by it"
                vm.unsupported("FE033", "method requires_grad_ of a tensor", why, HINT, place=value.first_use())


def is_asked_for(value: TensorValue) -> bool:
    """Whether captured code called ``requires_grad_()`` of a tensor that it had computed."""
    return value.node is not None and any(user.target == "requires_grad_" for user in value.node.users)


HINT = "compute the gradient inside of the captured code"


__all__ = ["keep_apart"]
