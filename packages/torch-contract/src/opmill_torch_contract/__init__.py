"""What opmill relies on in torch beyond its public interface, as rows that can be checked."""

from .__about__ import __version__ as __version__
from .checking import Missing as Missing
from .checking import check as check
from .checking import summary as summary
from .names import CUDA_NAMES as CUDA_NAMES
from .names import NAMES as NAMES
from .row import Row as Row
from .symbols import CPU_SYMBOLS as CPU_SYMBOLS
from .symbols import CUDA_SYMBOLS as CUDA_SYMBOLS
from .symbols import PYTHON_SYMBOLS as PYTHON_SYMBOLS
