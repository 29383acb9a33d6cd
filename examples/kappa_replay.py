"""A Kappa replay: version 2 reads the same log from its beginning into a topic of its own, then takes over.

VERSION=1 ottla streams run examples/kappa_replay.py --application-id revenue-v1
VERSION=2 ottla streams run examples/kappa_replay.py --application-id revenue-v2
ottla consumer-groups --describe --group revenue-v2      # lag zero: readers move from revenue-v1 to revenue-v2
ottla streams stop --application-id revenue-v1
"""

import os

from ottla.streams import StreamsBuilder


def revenue(version: int) -> StreamsBuilder:
    """Revenue by country; the second version no longer counts orders that were taken back."""
    b = StreamsBuilder()
    orders = b.stream("orders", value_serde="json")
    if version >= 2:
        orders = orders.filter_not(lambda _, order: order.get("returned", False))
    (
        orders.group_by(lambda _, order: order["country"], key_serde=str)
        .aggregate(0, lambda _, order, total: total + order["cents"], value_serde=int, store="revenue")
        .to_stream()
        .to(f"revenue-v{version}")
    )
    return b


b = revenue(int(os.environ.get("VERSION", "1")))
