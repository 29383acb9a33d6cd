"""How much is tried: `make test-fast` lets the models try less than `make test` does."""

from __future__ import annotations

import os

FAST = os.environ.get("OTTLA_TEST_FAST") == "1"


def examples(whole: int) -> int:
    """How many examples a property is tried with, of so many in a whole run."""
    return max(whole // 5, 3) if FAST else whole
