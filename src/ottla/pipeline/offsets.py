"""Source offsets of streaming queries, and a consumer group that shows them as progress and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def track_lag(
    query: StreamingQuery,
    *,
    group: str,
    bootstrap_servers: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Commit a query's source offsets to a consumer group after each batch; `.stop()` of what comes back ends it."""
