"""What functions of NumPy are as programs of torch: tables of plain functions, which are read as a part of the program.

A rule computes values only. Which dtype, shape and strides a result has, whether it is a view, and which errors are raised is asked of
NumPy itself, on arrays of ones of the same layout (`library.numpy.calls`)."""

from __future__ import annotations

from . import algebra as algebra
from . import missing as missing
from . import orders as orders
from .functions import FUNCTIONS as FUNCTIONS
from .functions import METHODS as METHODS
from .functions import UNITS as UNITS
from .ufuncs import BY_NUMBERS as BY_NUMBERS
from .ufuncs import UFUNCS as UFUNCS
