"""What a driver gives: connections, cursors and rows of Python's database API (PEP 249).

The drivers have no types of their own here, and each adds to the API what only its dialect uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Connection: TypeAlias = Any
"""A driver's connection: `cursor`, `commit`, `rollback`, `close`, and the driver's own settings."""

Cursor: TypeAlias = Any
"""A driver's cursor: `execute`, `executemany`, `fetchone`, `fetchmany`, `fetchall`, `description`, `rowcount`."""

SqlValue: TypeAlias = Any
"""A value of a row or a parameter: its class is the driver's choice, by the type of its column."""

SqlRow: TypeAlias = Sequence[SqlValue]
"""A row, or the parameters of a statement."""
