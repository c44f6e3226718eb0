"""Tracked values: one family a file. They see the interpreter only through the ``Machine`` protocol of ``values/base.py``."""
