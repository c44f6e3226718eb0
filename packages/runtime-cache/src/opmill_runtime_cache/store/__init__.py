"""The artifact store."""

from .keys import key_of as key_of
from .keys import sources_of as sources_of
from .remote import NoSecret as NoSecret
from .remote import Remote as Remote
from .store import DEFAULT_MAX_BYTES as DEFAULT_MAX_BYTES
from .store import Store as Store
from .store import default_root as default_root
from .store import default_store as default_store
from .store import open_remote as open_remote
from .store import remote_of_environment as remote_of_environment
from .store import temporary_folder as temporary_folder
