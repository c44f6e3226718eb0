"""opmill.compile(model): a modular compiler for PyTorch programs."""

from .__about__ import __version__ as __version__
from .compile import compile as compile
from .compile import reset as reset
from .diagnose.bisect import bisect as bisect
from .diagnose.bundle import bundle as bundle
from .diagnose.bundle import replay as replay
from .diagnose.check import check as check
from .diagnose.finding import Finding as Finding
from .diagnose.profile import profile as profile
from .diagnose.profiled import Profile as Profile
from .discover import list_backends as list_backends
from .errors import OpmillError as OpmillError
from .errors import OpmillWarning as OpmillWarning
from .explain import Explanation as Explanation
from .explain import explain as explain
from .kernels import GeneratedKernel as GeneratedKernel
from .kernels import Kernels as Kernels
from .kernels import kernels as kernels
from .logs import from_environment as _show_logs
from .logs import set_logs as set_logs
from .metrics import counters as counters
from .metrics import reset_counters as reset_counters
from .options import Options as Options
from .options import list_modes as list_modes
from .options import list_options as list_options
from .replacing import replace_torch_compile as replace_torch_compile
from .sizes import mark_dynamic as mark_dynamic
from .sizes import mark_static as mark_static
from .thawing import thaw as thaw
from .trace.making import report as report
from .tracing import disable as disable
from .tracing import is_compiling as is_compiling

_show_logs()
