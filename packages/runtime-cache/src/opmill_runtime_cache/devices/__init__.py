"""Devices that plans run on: each is a plug-in behind ``protocol.Device``, found by entry point (``registry.py``). ``cpu.py`` and ``cuda/``
are two of them; what is true of one device alone stands in its file, and others ask for its traits."""
