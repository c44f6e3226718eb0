"""opmill.compile(model): a modular compiler for PyTorch programs."""

from .__about__ import __version__ as __version__
from .compile import compile as compile
from .compile import reset as reset
from .discover import list_backends as list_backends
from .errors import OpmillError as OpmillError
from .errors import OpmillWarning as OpmillWarning
from .explain import Explanation as Explanation
from .explain import explain as explain
from .options import Options as Options
from .options import list_modes as list_modes
from .options import list_options as list_options
from .sizes import mark_dynamic as mark_dynamic
from .sizes import mark_static as mark_static
from .tracing import disable as disable
from .tracing import is_compiling as is_compiling
