"""A metric family as Apache Kafka registers it, and the three spellings that dashboards use for its name.

`kafka` are the JMX rules of Strimzi (and of most examples for the JMX exporter), `reporter` is Strimzi's metrics
reporter, `confluent` are the rules of Confluent's jmx-monitoring-stacks. Our own families have one name in all three.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final, NamedTuple


class Kind(Enum):
    """What Kafka registers a metric as, which decides its spelling."""

    METER = "a count of events"
    GAUGE = "a number that goes up and down"
    PERCENT = "a share between 0 and 1"
    IDLE_METER = "a share between 0 and 1 that Kafka keeps as a meter of nanoseconds"
    TIMES = "the distribution of durations in milliseconds"
    ATTRIBUTE = "an attribute of a bean of Kafka's newer metrics"
    STATE = "an attribute whose value is a word"
    PLAIN_GAUGE = "a gauge whose name is the same in every spelling"
    PLAIN_COUNTER = "a counter whose name is the same in every spelling"
    PLAIN_SUMMARY = "a sum and a count whose names are the same in every spelling"
    PLAIN_HISTOGRAM = "buckets whose name is the same in every spelling"


class Spelling(Enum):
    """Whose names `/metrics` uses; the values are those of `?names=`."""

    KAFKA = "kafka"
    REPORTER = "reporter"
    CONFLUENT = "confluent"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: bean `domain:type=type,name=name`. Plain ones have only a name."""

    domain: str
    type: str
    name: str
    kind: Kind
    help: str


class Shown(NamedTuple):
    """A family in one spelling."""

    name: str
    type: str


_PLAIN: Final = {
    Kind.PLAIN_GAUGE: "gauge",
    Kind.PLAIN_COUNTER: "counter",
    Kind.PLAIN_SUMMARY: "summary",
    Kind.PLAIN_HISTOGRAM: "histogram",
}
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_COMPACT_BEANS: Final = {"raft-metrics", "raft-channel-metrics", "broker-metadata-metrics"}
"""Beans whose dashes Strimzi's rules drop."""


def _joined(*words: str) -> str:
    return _NOT_IN_NAMES.sub("_", "_".join(words)).lower()


@cache
def shown(family: Family, spelling: Spelling) -> Shown:
    """The name and the type of a family in a spelling."""
    if family.kind in _PLAIN:
        return Shown(family.name, _PLAIN[family.kind])
    return _SPELLINGS[spelling](family)


def _kafka(family: Family) -> Shown:
    match family.kind:
        case Kind.METER:
            return Shown(
                _joined(family.domain, family.type, family.name.removesuffix("PerSec"), "total"), "counter"
            )
        case Kind.PERCENT | Kind.IDLE_METER:
            return Shown(
                _joined(family.domain, family.type, family.name.removesuffix("Percent"), "percent"), "gauge"
            )
        case Kind.ATTRIBUTE | Kind.STATE:
            bean = family.type.replace("-", "") if family.type in _COMPACT_BEANS else family.type
            counters = ("-total", "-max") if bean != family.type else ("-total",)
            kind = "untyped" if family.kind is Kind.STATE else "gauge"
            if family.name.endswith(counters):
                kind = "counter"
            return Shown(_joined(family.domain, bean, family.name), kind)
    return Shown(_joined(family.domain, family.type, family.name), "gauge")


def _reporter(family: Family) -> Shown:
    name = _joined(family.domain, family.type, family.name)
    match family.kind:
        case Kind.METER | Kind.IDLE_METER:
            return Shown(name + "_total", "counter")
        case Kind.TIMES:
            return Shown(name, "summary")
        case Kind.STATE:
            return Shown(name + "_info", "gauge")
        case Kind.ATTRIBUTE:
            # Its library reserves the suffix for counters, and the values are gauges.
            return Shown(name.removesuffix("_total"), "gauge")
    return Shown(name, "gauge")


def _confluent(family: Family) -> Shown:
    if family.kind in (Kind.ATTRIBUTE, Kind.STATE):
        bean = "socketservermetrics" if family.type == "socket-server-metrics" else family.type
        return Shown(_joined(family.domain, bean, family.name), "gauge")
    if family.kind is Kind.IDLE_METER:
        return Shown(_joined(family.domain, family.type, family.name, "OneMinuteRate"), "gauge")
    kind = "untyped" if family.kind in (Kind.METER, Kind.GAUGE, Kind.PERCENT) else "gauge"
    return Shown(_joined(family.domain, family.type, family.name), kind)


_SPELLINGS: Final = {
    Spelling.KAFKA: _kafka,
    Spelling.REPORTER: _reporter,
    Spelling.CONFLUENT: _confluent,
}
