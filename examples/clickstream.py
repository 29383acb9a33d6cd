"""Clicks per page and ten seconds; a click may come five seconds late."""

from datetime import timedelta

from ottla.streams import StreamsBuilder, tumbling

b = StreamsBuilder()
(
    b.stream("clicks", value_serde="json")
    .group_by(lambda _, click: click["page"], key_serde=str)
    .windowed_by(tumbling(timedelta(seconds=10), grace=timedelta(seconds=5)))
    .count(store="clicks-per-page")
    .to_stream(lambda page, _: f"{page.key}@{page.start}", name="by-window")
    .map_values(lambda count: {"clicks": count}, value_serde="json")
    .to("clicks-per-page", key_serde=str)
)
