"""Plans as text, and the laws that they obey: runtime-cache's."""

from __future__ import annotations

from opmill_runtime_cache.plan.text import parse as parse_plan
from opmill_runtime_cache.plan.text import render as show_plan
from opmill_runtime_cache.plan.verify import verify as verify_plan

__all__ = ["parse_plan", "show_plan", "verify_plan"]
