"""Sizes that are not fixed: integer expressions over symbols, an environment that knows what was assumed of them, and torch's door to
both."""

from .facts import Relation as Relation
from .index import FloorDiv as FloorDiv
from .index import Index as Index
from .index import Mod as Mod
from .index import floordiv as floordiv
from .index import index as index
from .index import mod as mod
from .node import SizeNode as SizeNode
from .node import index_of as index_of
from .node import is_symbolic as is_symbolic
from .node import sizes_of as sizes_of
from .node import sym_int as sym_int
from .sizes import Decision as Decision
from .sizes import Sizes as Sizes
from .sizes import Symbol as Symbol
from .sympy_form import from_sympy as from_sympy
from .sympy_form import to_sympy as to_sympy
