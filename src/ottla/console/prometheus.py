"""Charts of the last week from a Prometheus that the user names: the console itself remembers a day."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from markupsafe import Markup

from ottla.console.draw.chart import time_chart
from ottla.console.services import ServiceProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.console.web import View

_logger = logging.getLogger(__name__)

WEEK_S: Final = 7 * 86400
STEP_S: Final = 3600
_STEPS: Final = WEEK_S // STEP_S
_KNOWN_FOR_S: Final = 60.0
_MOST_KNOWN: Final = 256


def quoted(text: str) -> str:
    """A text as a string of PromQL."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def messages_in(topic: str | None = None) -> str:
    """Records per second of a topic; of all topics for None."""
    chosen = f"topic={quoted(topic)}" if topic is not None else 'topic!=""'
    return f"sum(rate(kafka_server_brokertopicmetrics_messagesin_total{{{chosen}}}[1h]))"


def group_lag(group: str) -> str:
    """How many records a group has not read, from the exporter of this console or another one."""
    return f"sum(kafka_consumergroup_lag{{consumergroup={quoted(group)}}})"


async def week(view: View, expression: str, name: str, title: str, show: Callable[[float], str]) -> Markup:
    """A chart of an expression over the last week. Empty without a Prometheus; a sentence if it does not answer."""
    service = view.cluster.services.prometheus
    if service is None:
        return Markup("")
    now = time.time()
    known = view.cluster.weeks.get(expression)
    if known is not None and now - known[0] < _KNOWN_FOR_S:
        return time_chart([(name, known[1])], title, show, float(STEP_S))
    query = urlencode({"query": expression, "start": now - WEEK_S, "end": now, "step": STEP_S})
    try:
        answer = await view.cluster.ask(service, "GET", f"/api/v1/query_range?{query}")
        values = series(answer, now)
    except ServiceProblem as problem:
        _logger.info("Prometheus gives no chart: %s", problem.message)
        return Markup('<p class="dim">{}</p>').format(problem.message)
    if len(view.cluster.weeks) >= _MOST_KNOWN:
        view.cluster.weeks.clear()
    view.cluster.weeks[expression] = now, values
    return time_chart([(name, values)], title, show, float(STEP_S))


def series(answer: object, now: float) -> list[float]:
    """The values of an answer, one an hour up to now, 0 where one is missing. ServiceProblem for anything else."""
    try:
        results = answer["data"]["result"]  # type: ignore[index]
        points = [(float(at), float(value)) for each in results[:1] for at, value in each["values"]]
    except (KeyError, TypeError, ValueError, IndexError):
        raise ServiceProblem("What answers in the place of Prometheus is none.", 200) from None
    if not points:
        return []
    first = now - WEEK_S
    found: dict[int, float] = {}
    for at, value in points:
        step = round((at - first) / STEP_S)
        if 0 <= step <= _STEPS and math.isfinite(value):
            found[step] = value
    return [found.get(step, 0.0) for step in range(min(found, default=0), _STEPS + 1)] if found else []
