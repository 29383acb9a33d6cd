"""Configurations that are refused, with what to do instead."""

from __future__ import annotations

import sys

import pytest

from ottla.connect.config.connector import validate_connector
from ottla.connect.failures import BadRequest, ConnectError
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


def test_an_unknown_key_is_accepted_and_the_nearest_one_is_named():
    config = {"name": "lines", "connector.class": "FileStreamSource", "topic": "lines", "flie": "lines.txt"}
    found = validate_connector(Plugins(), config)
    assert found.unknown == ["flie has no effect; did you mean file?"]
    assert not any(value.errors for _, value in found.configs)


def test_a_missing_library_is_named_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymongo", None)
    for name in [one for one in sys.modules if one.startswith("ottla.connect.") and "mongo" in one]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConnectError, match=r"pip install 'ottla\[mongodb\]'"):
        Plugins().connector("com.mongodb.kafka.connect.MongoSinkConnector")
