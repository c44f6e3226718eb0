"""Where a value came from, what was assumed of it, and a native tree that checks it."""

from .__about__ import __version__ as __version__
from .interpreter import refuse_free_threading

refuse_free_threading()

from ._native import CompiledFunction as CompiledFunction  # noqa: E402
from ._native import Shown as Shown  # noqa: E402
from ._native import TailCall as TailCall  # noqa: E402
from ._native import finish as finish  # noqa: E402
from ._native import instance_dict as instance_dict  # noqa: E402
from .errors import GuardError as GuardError  # noqa: E402
from .tree import Failure as Failure  # noqa: E402
from .tree import GuardSet as GuardSet  # noqa: E402
