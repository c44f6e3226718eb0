"""Offering the Python functions called while code runs to a callback (PEP 523). Needs no torch.

Nothing is hooked into the interpreter until a thread enters `intercept`, and nothing after the last has left it.
"""

from .intercept import Callback as Callback
from .intercept import intercept as intercept
from .intercept import is_installed as is_installed
from .intercept import set_callback as set_callback
from .intercept import skip as skip
