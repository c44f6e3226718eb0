"""Where a value came from, what was assumed of it, and a native tree that checks it."""

from .__about__ import __version__ as __version__
from ._native import CompiledFunction as CompiledFunction
from ._native import TailCall as TailCall
from ._native import finish as finish
from .errors import GuardError as GuardError
from .tree import Failure as Failure
from .tree import GuardSet as GuardSet
