"""Parameters that hide a builtin (``type``, ``object``, ``list``): what stands around graphs means the builtin, and callers the parameter."""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


@torch.compiler.disable
def apart(value: Any = 0) -> Any:
    return value


class Object:
    pass


class Table:
    def __init__(self) -> None:
        self.items: dict[int, int] = {}

    def __getitem__(self, object: int) -> int:  # noqa: A002
        if object not in self.items:
            self.items[object] = object
            return object
        apart()
        return self.items[object]


TABLE = Table()


def stored(object: Any, type: int = 0, *list: int, dict: int = 3, **getattr: int) -> Any:  # noqa: A002
    made, object.z = Table(), 3
    apart()
    object.z += 1
    return object.z, type, list, dict, getattr, made[3], made[3]


def looked_up() -> Any:
    TABLE.items.clear()
    return TABLE[4], TABLE[5], TABLE[4]


def walked(next: int, bool: int, setattr: Any, super: int, iter: int) -> Any:  # noqa: A002
    it: Any = Object()
    it.held = super
    for i in (1, 2):
        if apart(bool):
            it.held = it.held + next * i
    return [setattr(each) for each in (iter, it.held)], it.held


def gathered(list: int, tuple: int, len: int) -> Any:  # noqa: A002
    held = [list]
    held.append(tuple)
    apart()
    held.append(len)
    return held, {apart(1): held}


def computed(x: torch.Tensor, *, type: int, id: int = 3) -> Any:  # noqa: A002
    y = x * type
    apart()
    return y + id


CALLS = [
    (stored, (Object(), 1, 2, 3), {"dict": 5, "len": 6}),
    (looked_up, (), {}),
    (walked, (1, 1, abs, -3, -4), {}),
    (gathered, (1, 2), {"len": 3}),
    (computed, (torch.ones(2),), {"type": 2}),
    (computed, (torch.ones(2),), {"type": 2, "id": 5}),
]


@pytest.mark.parametrize(("program", "args", "kwargs"), CALLS, ids=[f"{call[0].__name__}-{i}" for i, call in enumerate(CALLS)])
def test_parameters(program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    compiled = capture(program)
    for _ in range(2):
        assert str(compiled(*args, **kwargs)) == str(program(*args, **kwargs))


def test_every_builtin() -> None:
    """Whatever the generated text needs, a parameter may have the name."""
    for name in (each for each in vars(builtins) if each.isidentifier() and each not in ("None", "True", "False", "__debug__")):
        names: dict[str, Any] = {"apart": apart, "Object": Object}
        exec(
            f"def program({name}, x):\n it = Object()\n it.a = [{name}]\n apart(1)\n it.a.append({name} + 1)\n"
            f" it.b = dict_ = {{}}\n dict_['k'] = x + {name}\n apart(1)\n return it.a, it.b, vars_(it)",
            names | {"vars_": vars},
            names,
        )
        program = names["program"]
        assert str(capture(program)(**{name: 3, "x": torch.ones(2)})) == str(program(3, torch.ones(2))), name


def raising(type: int, hash: int) -> None:  # noqa: A002
    apart()
    raise ValueError(type + hash)


def test_frames_show_the_parameters() -> None:
    compiled = capture(raising)
    with pytest.raises(ValueError, match="3") as caught:
        compiled(type=1, hash=2)
    frame = [each for each, _ in traceback.walk_tb(caught.value.__traceback__) if each.f_code.co_name == "raising"][-1]
    assert frame.f_locals["type"] == 1
    with pytest.raises(TypeError, match=r"raising\(\) got an unexpected keyword argument 'other'"):
        compiled(1, other=2)
