"""The native executor; see ``native/``."""

from collections.abc import Callable
from typing import Any

class Executable:
    """A plan bound to its held tensors and kernels: ``executable(*inputs) -> tuple``."""

    arena_bytes: int
    instances: int
    name: str
    def __new__(cls, program: tuple[Any, ...], max_arena_bytes: int, /) -> Executable: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

def load_cuda(driver: str, libtorch_cuda: str, /) -> str | None: ...
def load(
    libtorch_cpu: str, libtorch_python: str, tensor: Any, cdata: int, tensor_type: type, numbered: Callable[[str, str], Exception], /
) -> str | None: ...
