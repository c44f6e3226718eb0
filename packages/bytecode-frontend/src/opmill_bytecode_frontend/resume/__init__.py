"""Continuing a function from the middle: what a graph break needs. Needs no torch."""

from .leave import emit_leave as emit_leave
from .leave import leave_at as leave_at
from .leave import split as split
from .make import ASK as ASK
from .make import END as END
from .make import STATE as STATE
from .make import Parameter as Parameter
from .make import ParameterKind as ParameterKind
from .make import Resume as Resume
from .make import closure_of as closure_of
from .make import is_of_stack as is_of_stack
from .make import make_resume as make_resume
from .states import Bound as Bound
from .states import StackKind as StackKind
from .states import State as State
from .states import states as states
from .taking import taking as taking
