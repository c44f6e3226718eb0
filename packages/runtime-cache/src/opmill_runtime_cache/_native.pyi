"""The native executor; see ``native/``."""

from collections.abc import Callable
from typing import Any

class Executable:
    """A plan bound to its held tensors and kernels: ``executable(*inputs) -> tuple``."""

    arena_bytes: int
    instances: int
    name: str
    step_seconds: tuple[float, ...]
    def __new__(cls, program: tuple[Any, ...], /) -> Executable: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...
    def into(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], /) -> tuple[Any, ...]: ...
    def take(self, inputs: list[Any], /) -> tuple[Any, ...]: ...
    def held_at(self) -> int: ...
    def touch_held(self) -> None: ...
    def time_steps(self, on: bool, /) -> None: ...

class Frozen:
    """Calls of ``count`` inputs, those at ``positions`` being tensors that were promised to stay. A call with tensors that a copy was
    made of, and that have not changed, goes to that copy with the other inputs; any other to ``miss(*inputs)``."""

    tokens: list[int]
    def __new__(cls, positions: tuple[int, ...], count: int, miss: Callable[..., Any], /) -> Frozen: ...
    def __call__(self, *inputs: Any) -> Any: ...
    def add(self, tensors: tuple[Any, ...], run: Callable[..., Any], bytes: tuple[int, ...], memory: Any = ..., /) -> int: ...
    def remove(self, token: int, /) -> int | None: ...
    def is_fresh(self, token: int, tensors: tuple[Any, ...], /) -> bool: ...

class Noted:
    """A call of a ``Differentiated``, and what running it again would take."""

    inputs: list[Any]
    drawn: Any
    versions: int
    count: int

class Differentiated:
    """A plan as a node of autograd: ``differentiated(*inputs) -> tuple``. ``apply``: of the autograd function whose forward and backward
    are the two below. ``otherwise`` is called instead under transforms of torch.func (``transformed()``) and for tensors that are not
    plain; ``owner.slowly(context, noted, *gradients)`` for gradients that the plan ``owner.backward`` does not take, ``relaid(list)`` where
    that raises ``refused``. ``saved``: (0 of inputs, 1 of ``held``, 2 of outputs, number); ``connected`` counts inputs, then ``held``;
    ``tangents``: (output, number of its type, strides)."""

    def __new__(
        cls,
        *,
        apply: Callable[..., tuple[Any, ...]],
        transformed: Callable[[], bool],
        keeps: Callable[[], bool] | None,
        drawn: Callable[[], Any] | None,
        run: Callable[..., Any],
        owner: Any,
        held: tuple[Any, ...],
        otherwise: Callable[..., Any],
        relaid: Callable[[list[Any]], Any],
        refused: type[Exception],
        tensor: type,
        inputs: int,
        outputs: int,
        gradients: int,
        owned: bytes,
        saved: tuple[tuple[int, int], ...],
        connected: tuple[int, ...],
        tangents: tuple[tuple[int, int, tuple[int, ...]], ...],
    ) -> Differentiated: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

def forward(context: Any, noted: Noted, /, *connected: Any) -> tuple[Any, ...]: ...
def backward(context: Any, /, *gradients: Any) -> tuple[Any, ...]: ...
def idle_arena_bytes() -> int: ...
def versions(*tuples: tuple[Any, ...]) -> int | None: ...
def references(values: tuple[Any, ...], count: int, owned: bytes, /) -> list[Any] | None: ...
def aliases(tensors: list[Any], /) -> tuple[Any, ...]: ...
def places(tensors: tuple[Any, ...], /) -> bytes: ...
def load_cuda(driver: str, libtorch_cuda: str, /) -> str | None: ...
def cuda_reaches_host() -> bool: ...
def load(
    libtorch_cpu: str, libtorch_python: str, tensor: Any, cdata: int, tensor_type: type, numbered: Callable[[str, str], Exception], /
) -> str | None: ...
