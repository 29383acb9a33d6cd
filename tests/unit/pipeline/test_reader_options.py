"""The options of format("ottla"): Spark's names and defaults, sentences for mistakes, no secret in any text."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.fetching import READ_COMMITTED, READ_UNCOMMITTED
from ottla.pipeline.reader_options import At, ReaderOptions, column_names, parse_options
from ottla.pipeline.writer import Place
from ottla.testing.certificates import CertificateAuthority

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders, payments"}


def parsed(streaming: bool = False, **options: str) -> ReaderOptions:
    return parse_options({**BASE, **options}, streaming=streaming)


def test_defaults_are_those_of_sparks_source() -> None:
    batch, stream = parsed(), parsed(streaming=True)
    assert batch.topics == ("orders", "payments")
    assert (batch.start, batch.end) == (At("earliest"), At("latest"))
    assert stream.start == At("latest")
    assert stream.fail_on_data_loss
    assert stream.max_offsets is None
    assert stream.max_trigger_delay_s == 900
    assert batch.isolation == READ_COMMITTED
    assert "headers" not in batch.columns


def test_options_have_no_case_and_settings_of_kafka_take_effect() -> None:
    found = parse_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "SUBSCRIBEPATTERN": "ord.*",
            "StartingOffsets": "EARLIEST",
            "maxoffsetsPERtrigger": "500",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "5 min",
            "failondataloss": "False",
            "minPartitions": "7",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.fetch.max.bytes": "1000",
            "kafka.max.partition.fetch.bytes": "100",
            "kafka.fetch.max.wait.ms": "20",
            "kafka.request.timeout.ms": "5000",
            "kafka.client.id": "me",
            "kafka.max.poll.records": "7",
        },
        streaming=True,
    )
    assert (found.pattern, found.start) == ("ord.*", At("earliest"))
    assert (found.max_offsets, found.min_offsets, found.max_trigger_delay_s) == (500, 10, 300)
    assert (found.fail_on_data_loss, found.min_partitions) == (False, 7)
    assert found.columns[-1] == "headers"
    assert found.isolation == READ_UNCOMMITTED
    assert (found.limits.max_bytes, found.limits.partition_max_bytes, found.limits.max_wait_ms) == (
        1000,
        100,
        20,
    )
    assert found.settings.bootstrap == (("a", 1), ("b", 2))
    assert (found.settings.client_id, found.settings.request_timeout_s) == ("me", 5.0)


def test_partitions_and_their_offsets_are_json() -> None:
    found = parse_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "assign": '{"orders":[0,2]}',
            "startingOffsets": '{"orders":{"0":23,"2":-2}}',
            "endingOffsetsByTimestamp": '{"orders":{"0":1000,"2":2000}}',
        },
        streaming=False,
    )
    assert found.places == (Place("orders", 0), Place("orders", 2))
    assert found.start.positions == {Place("orders", 0): 23, Place("orders", 2): -2}
    assert found.end.timestamps == {Place("orders", 0): 1000, Place("orders", 2): 2000}
    # A time for all partitions comes first.
    assert parsed(startingTimestamp="5", startingOffsets="earliest").start == At(timestamp=5)


@pytest.mark.parametrize(
    ("options", "streaming", "sentence"),
    [
        ({"assign": '{"a":[0]}'}, False, "assign and subscribe is given"),
        ({"subscribe": " , "}, False, "the option subscribe names no topic"),
        ({"kafka.bootstrap.servers": ""}, False, "the option kafka.bootstrap.servers is missing"),
        ({"startingOffsets": "latest"}, False, "cannot be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, False, "cannot be latest"),
        ({"endingOffsets": "earliest"}, False, "cannot be earliest"),
        ({"endingOffsets": "latest"}, True, "endingoffsets is for batch reads"),
        ({"startingOffsets": "[3]"}, True, "startingoffsets is not of the form"),
        ({"startingOffsets": '{"a":{"0":-7}}'}, True, "has -7 for a-0"),
        ({"maxOffsetsPerTrigger": "0"}, True, "maxoffsetspertrigger is a whole number of at least 1, not 0"),
        ({"minPartitions": "many"}, False, "minpartitions is a whole number of at least 1, not many"),
        ({"failOnDataLoss": "perhaps"}, False, "failondataloss is one of true, false, not perhaps"),
        ({"maxTriggerDelay": "soon"}, True, "maxTriggerDelay is a time like 15m, not soon"),
        ({"columns": "key,colour"}, False, "the option columns has colour: name some of key, value"),
        ({"kafka.isolation.level": "serial"}, False, "kafka.isolation.level is one of"),
        ({"kafka.auto.offset.reset": "earliest"}, False, "give the option startingOffsets instead"),
        ({"kafka.security.protocol": "TLS"}, False, "security_protocol must be one of"),
        ({"kafka.sasl.jaas.config": "oops"}, False, "sasl.jaas.config"),
    ],
)
def test_mistakes_get_a_sentence(options, streaming, sentence) -> None:
    with pytest.raises(PipelineError) as refused:
        parsed(streaming, **options)
    assert sentence in str(refused.value)


def test_an_unknown_option_is_named_once(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        parsed(startingOffset="earliest", groupIdPrefix="x")
    assert [one.getMessage() for one in caplog.records] == [
        "the option startingoffset is unknown and has no effect"
    ]


def test_javas_names_of_tls_and_sasl_work_and_show_no_secret(tmp_path) -> None:
    trust = CertificateAuthority.create().write_truststore(tmp_path / "ca.pem")
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    found = parsed(
        **{
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{login} username="alice" password="wonder-land";',
            "kafka.ssl.truststore.location": str(trust),
            "kafka.ssl.truststore.type": "PEM",
        }
    )
    security = found.settings.security
    assert (security.mechanism, security.user, security.password) == ("PLAIN", "alice", "wonder-land")
    assert security.tls_context() is not None
    assert "wonder-land" not in repr(found)


def test_columns_are_chosen_by_name() -> None:
    assert column_names({"columns": "offset, value"}) == ("offset", "value")
    assert column_names({"includeHeaders": "TRUE"})[-1] == "headers"
