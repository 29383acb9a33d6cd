"""Readings of sensors meet the limits that are set for each: what is too hot becomes an alert."""

from dataclasses import dataclass

from ottla.streams import StreamsBuilder


@dataclass
class Reading:
    celsius: float


@dataclass
class Limit:
    celsius: float
    room: str


b = StreamsBuilder()
limits = b.table("limits", key_serde=str, value_serde=Limit, store="limits")
(
    b.stream("readings", key_serde=str, value_serde=Reading)
    .join(limits, lambda reading, limit: {"room": limit.room, "over": reading.celsius - limit.celsius})
    .filter(lambda _, alert: alert["over"] > 0)
    .to("alerts", value_serde="json")
)
