"""What a node and the process that supervises it agree on: the line that reports replicas in sync."""

from __future__ import annotations

from typing import Final

REPORT_IN_SYNC: Final = "OTTLA_REPORT_IN_SYNC"
"""Set for a node that prints `IN_SYNC` on standard output when all its replicas have caught up after a start."""
IN_SYNC: Final = "in sync"
