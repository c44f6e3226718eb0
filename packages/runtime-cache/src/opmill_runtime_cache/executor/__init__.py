"""Running plans."""

from .kernels import kernel_entry as kernel_entry
from .native import Executable as Executable
from .native import bind as bind
from .native import packs_matrices as packs_matrices
from .reference import ReferenceExecutable as ReferenceExecutable
from .reference import bind_reference as bind_reference
from .timing import TimedExecutable as TimedExecutable
