"""What clients use of their quotas, from what brokers show."""

from __future__ import annotations

import pytest

from ottla.admin.node_metrics import numbers, samples
from ottla.admin.users import Quotas
from ottla.console.pages.access import use_in_words

TEXT = """
kafka_server_produce_byte_rate{user="ann",client_id="app-1"} 1000
kafka_server_produce_byte_rate{user="ann",client_id="app-2"} 500
kafka_server_fetch_byte_rate{user="",client_id="app-1"} 70
kafka_server_produce_throttle_time{user="ann",client_id="app-1"} 12
"""


@pytest.mark.parametrize(
    ("entity", "key", "words"),
    [
        ({"user": "ann", "client-id": None}, "producer_byte_rate", "producer_byte_rate 1,500 by 2 clients"),
        ({"user": "ann", "client-id": "app-2"}, "producer_byte_rate", "producer_byte_rate 500 by 1 client"),
        ({"client-id": "app-1"}, "consumer_byte_rate", "consumer_byte_rate 70 by 1 client"),
        ({"user": "bob"}, "producer_byte_rate", ""),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", ""),
    ],
)
def test_what_clients_use_of_a_quota_is_said_in_words(entity, key, words):
    used = {(each, user, client): rate for each, user, client, rate in numbers(1, samples(TEXT)).quotas}
    assert use_in_words(Quotas(entity, {key: 9.0}), used) == words
