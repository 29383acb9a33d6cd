"""Topics by regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.tools.failures import UsageProblem

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster


def matcher(expression: str) -> Callable[[str], bool]:
    """Whether a name fits a list of regular expressions, as Kafka's tools take them: `orders,test.*`."""
    joined = expression.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        pattern = re.compile(joined)
    except re.error as error:
        raise UsageProblem(f"'{expression}' is not a regular expression: {error}") from None
    return lambda name: pattern.fullmatch(name) is not None


def topic_names(
    cluster: Cluster, expression: str | None = None, *, exclude_internal: bool = False
) -> list[str]:
    """The cluster's topics in the order of their names."""
    fits = matcher(expression) if expression is not None else lambda _: True
    return sorted(
        topic.name or ""
        for topic in cluster.metadata().topics
        if fits(topic.name or "") and not (exclude_internal and topic.is_internal)
    )
