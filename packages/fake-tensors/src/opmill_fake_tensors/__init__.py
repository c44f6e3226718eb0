"""Light fake tensors: shapes, strides, dtypes and devices without data."""

# First: from here on a fork waits for the imports of other threads.
from .forking import ForkLock as ForkLock  # isort: skip
from .__about__ import __version__ as __version__
from .context import FakeContext as FakeContext
from .errors import DataDependent as DataDependent
from .errors import FakeTensorError as FakeTensorError
from .errors import NoFakeKernel as NoFakeKernel
from .hooks import no_hooks_on_saved_tensors as no_hooks_on_saved_tensors
from .tensor import FakeTensor as FakeTensor
