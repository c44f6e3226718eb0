"""The artifact store."""

from .keys import key_of as key_of
from .keys import sources_of as sources_of
from .store import DEFAULT_MAX_BYTES as DEFAULT_MAX_BYTES
from .store import Store as Store
from .store import default_root as default_root
from .store import default_store as default_store
