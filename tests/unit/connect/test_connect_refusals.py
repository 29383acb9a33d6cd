"""Configurations that are refused, with what to do instead."""

from __future__ import annotations

import pytest

from ottla.connect.config.connector import validate_connector
from ottla.connect.failures import BadRequest
from ottla.connect.plugins import Plugins


def test_other_connectors_of_debezium_are_refused_with_a_way_to_run_them():
    with pytest.raises(BadRequest, match=r"connector.class to ottla\.connect\.DebeziumSource"):
        Plugins().connector("io.debezium.connector.other.OtherConnector")


@pytest.mark.parametrize(
    ("boundary", "errors"), [("connector", 1), ("CONNECTOR", 1), ("interval", 0), ("poll", 0)]
)
def test_transactions_that_a_connector_would_define_are_refused_in_kafka_s_words(boundary, errors):
    config = {
        "name": "lines",
        "connector.class": "FileStreamSource",
        "file": "lines.txt",
        "topic": "lines",
        "transaction.boundary": boundary,
    }
    found = validate_connector(Plugins(), config)
    (value,) = (one for _, one in found.configs if one.name == "transaction.boundary")
    assert len(value.errors) == errors
    assert all("does not support connector-defined transaction boundaries" in one for one in value.errors)
