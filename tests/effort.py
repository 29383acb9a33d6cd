"""The effort of a test run: `make test-fast` tries fewer examples than `make test`."""

from __future__ import annotations

import os

FAST = os.environ.get("OTTLA_TEST_FAST") == "1"


def examples(whole: int) -> int:
    """Return the number of examples for a property: fewer than `whole` in a fast run."""
    return max(whole // 5, 3) if FAST else whole
