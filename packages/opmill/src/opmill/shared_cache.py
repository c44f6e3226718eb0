"""The cache that machines share, as options or the environment ask for it."""

from __future__ import annotations

from opmill_runtime_cache.store import NoSecret, Remote, open_remote, remote_of_environment

from .errors import UsageValueError
from .options import Options


def shared_cache(options: Options) -> Remote | None:
    """The shared cache, None where none is asked for. Raises ``UsageValueError`` OM022 where an option asks for one that cannot be opened
    (nothing is asked of the network yet); what the environment asks for in vain is done without."""
    if options.cache_url is None and options.cache_key_file is None:
        return remote_of_environment()
    try:
        return open_remote(options.cache_url, options.cache_key_file)
    except (NoSecret, ImportError, OSError, UnicodeDecodeError) as error:
        raise UsageValueError("OM022", f"the shared cache cannot be used: {error}", hint="docs/guides/caches.md") from error
