"""Integer index expressions, for kernel generators: the algebra itself lies below, where sizes are traced (opmill_fake_tensors.symbols)."""

from opmill_fake_tensors.symbols.index import ONE as ONE
from opmill_fake_tensors.symbols.index import ZERO as ZERO
from opmill_fake_tensors.symbols.index import Atom as Atom
from opmill_fake_tensors.symbols.index import FloorDiv as FloorDiv
from opmill_fake_tensors.symbols.index import Index as Index
from opmill_fake_tensors.symbols.index import IndexLike as IndexLike
from opmill_fake_tensors.symbols.index import Mod as Mod
from opmill_fake_tensors.symbols.index import Monomial as Monomial
from opmill_fake_tensors.symbols.index import SizeUnknown as SizeUnknown
from opmill_fake_tensors.symbols.index import floordiv as floordiv
from opmill_fake_tensors.symbols.index import index as index
from opmill_fake_tensors.symbols.index import mod as mod
