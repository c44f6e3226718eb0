"""Code objects as editable data: decode, analyse, emit, assemble. Needs neither torch nor any other package."""

from .assemble import assemble as assemble
from .decode import decode as decode
from .emitter import Emitter as Emitter
from .flow import falls_through as falls_through
from .flow import reachable as reachable
from .flow import stack_depths as stack_depths
from .flow import stack_effect as stack_effect
from .flow import stack_size as stack_size
from .flow import successors as successors
from .liveness import live_at as live_at
from .liveness import liveness as liveness
from .liveness import reads_names as reads_names
from .liveness import uses_and_kills as uses_and_kills
from .program import ExceptionHandler as ExceptionHandler
from .program import ExceptionRange as ExceptionRange
from .program import Instruction as Instruction
from .program import Position as Position
from .program import Program as Program
from .program import copy_instructions as copy_instructions
from .program import pad_ranges as pad_ranges
from .program import split_pairs as split_pairs
