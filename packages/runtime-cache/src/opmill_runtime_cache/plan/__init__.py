"""The Plan: data, text, bytes, and the laws it obeys."""

from .codec import FORMAT_VERSION as FORMAT_VERSION
from .codec import decode as decode
from .codec import encode as encode
from .expr import evaluate as evaluate
from .text import parse as parse
from .text import render as render
from .verify import complaints as complaints
from .verify import verify as verify
