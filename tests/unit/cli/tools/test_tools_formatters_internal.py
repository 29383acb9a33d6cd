"""The console consumer's formatters for Kafka's own topics, on records made by hand."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.message_json import as_text
from ottla.cli.tools.record_format import advice_on, formatter_of

TOOLS = "org.apache.kafka.tools.consumer"
REMOTE = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
    "$RemoteLogMetadataFormatter"
)
OFFSET_KEY = b"\x00\x01\x00\x04shop\x00\x06orders\x00\x00\x00\x02"
OFFSET_VALUE = b"\x00\x03" + (7).to_bytes(8) + b"\xff\xff\xff\xff" + b"\x00\x01m" + (1234).to_bytes(8)
GROUP_KEY = b"\x00\x02\x00\x04shop"
GROUP_VALUE = b"\x00\x00\x00\x08consumer\x00\x00\x00\x05\xff\xff\xff\xff\x00\x00\x00\x00"
SHARE_KEY = b"\x00\x0b\x00\x05queue"
SHARE_VALUE = b"\x00\x00\x00\x00\x00\x09" + bytes(8) + b"\x00"
TRANSACTION_KEY = b"\x00\x00\x00\x04till"
TRANSACTION_VALUE = (
    b"\x00\x00" + (40).to_bytes(8) + b"\x00\x03" + (60_000).to_bytes(4) + b"\x00" + b"\xff\xff\xff\xff"
) + bytes(16)
STATE_KEY = b"\x00\x01\x00\x05queue" + bytes(range(16)) + b"\x00\x00\x00\x01"
PARTITION = b"\x05logs" + bytes(range(16)) + b"\x00\x00\x00\x02" + b"\x00"
DELETION = b"\x01\x02\x00" + PARTITION + b"\x00\x00\x00\x01" + bytes(8) + b"\x02\x00"


class Record:
    """What librdkafka hands over, as far as these formatters look at it."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self.key = lambda: key
        self.value = lambda: value
        self.partition = lambda: 2
        self.offset = lambda: 9


def show(formatter: str, key: bytes | None, value: bytes | None, as_json: bool = False) -> str:
    return formatter_of(formatter, {"print.key": "true"}, as_json).format(Record(key, value)).decode()


OFFSETS_TEXT = (
    '{"key":{"type":1,"data":{"group":"shop","topic":"orders","partition":2}},"value":{"version":3,"data":'
    '{"offset":7,"leaderEpoch":-1,"metadata":"m","commitTimestamp":1234}}}'
)
GROUP_TEXT = (
    '{"key":{"type":2,"data":{"group":"shop"}},"value":{"version":0,"data":{"protocolType":"consumer",'
    '"generation":5,"protocol":null,"leader":null,"members":[]}}}'
)


@pytest.mark.parametrize(
    "name",
    [
        "OffsetsMessageFormatter",
        f"{TOOLS}.OffsetsMessageFormatter",
        "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
        r"kafka.coordinator.group.GroupMetadataManager\$OffsetsMessageFormatter",
        "kafka.server.GroupMetadataManager$OffsetsMessageFormatter",
    ],
)
def test_offsets_by_every_name_of_the_class(name: str) -> None:
    assert show(name, OFFSET_KEY, OFFSET_VALUE) == OFFSETS_TEXT
    assert show(name, OFFSET_KEY, None) == OFFSETS_TEXT.partition(',"value"')[0] + ',"value":null}'
    for key, value in ((GROUP_KEY, GROUP_VALUE), (SHARE_KEY, SHARE_VALUE), (None, b"v"), (None, None)):
        assert show(name, key, value) == ""


def test_groups() -> None:
    name = "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter"
    assert show(name, GROUP_KEY, GROUP_VALUE) == GROUP_TEXT
    assert show(name, GROUP_KEY, None).endswith('"value":null}')
    assert show(name, OFFSET_KEY, OFFSET_VALUE) == show(name, SHARE_KEY, SHARE_VALUE) == ""


def test_share_groups() -> None:
    name = f"{TOOLS}.ShareGroupMessageFormatter"
    shown = json.loads(show(name, SHARE_KEY, SHARE_VALUE))
    assert shown["key"] == {"type": 11, "data": {"groupId": "queue"}}
    assert shown["value"]["data"]["epoch"] == 9
    assert show(name, OFFSET_KEY, OFFSET_VALUE) == show(name, GROUP_KEY, None) == ""


def test_transactions() -> None:
    name = "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"
    shown = json.loads(show(name, TRANSACTION_KEY, TRANSACTION_VALUE))
    assert shown["key"] == {"type": 0, "data": {"transactionalId": "till"}}
    value = shown["value"]
    assert value["version"] == 0 and value["data"]["producerId"] == 40
    assert value["data"]["transactionPartitions"] is None


def test_state_of_share_groups() -> None:
    shown = json.loads(show(f"{TOOLS}.group.share.ShareGroupStateMessageFormatter", STATE_KEY, None))
    key = {"groupId": "queue", "topicId": "AAECAwQFBgcICQoLDA0ODw", "partition": 1}
    assert shown == {"key": {"type": 1, "data": key}, "value": None}


def test_remote_log_metadata() -> None:
    output = (
        "RemotePartitionDeleteMetadata{topicPartition=AAECAwQFBgcICQoLDA0ODw:logs-2,"
        " state=DELETE_PARTITION_FINISHED, eventTimestampMs=0, brokerId=1}"
    )
    assert show(REMOTE, None, DELETION) == f"partition: 2, offset: 9, value: {output}\n"
    in_json = show(REMOTE, b"k", DELETION, as_json=True)
    assert json.loads(in_json) == {"partition": 2, "offset": 9, "value": output} and in_json.endswith("\n")


def test_json_has_a_line_for_each() -> None:
    assert show("OffsetsMessageFormatter", OFFSET_KEY, OFFSET_VALUE, as_json=True) == OFFSETS_TEXT + "\n"


def test_at_a_terminal_each_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert show("OffsetsMessageFormatter", OFFSET_KEY, OFFSET_VALUE) == OFFSETS_TEXT + "\n"


@pytest.mark.parametrize(
    ("formatter", "key", "value"),
    [
        ("OffsetsMessageFormatter", b"", None),
        ("OffsetsMessageFormatter", b"\x00", b""),
        ("OffsetsMessageFormatter", OFFSET_KEY, b""),
        ("OffsetsMessageFormatter", OFFSET_KEY, b"\x00\x63" + OFFSET_VALUE[2:]),
        ("OffsetsMessageFormatter", OFFSET_KEY, b"\xff\xff" + OFFSET_VALUE[2:]),
        ("OffsetsMessageFormatter", GROUP_KEY, GROUP_VALUE[:-9]),
        ("TransactionLogMessageFormatter", TRANSACTION_KEY[:-1], TRANSACTION_VALUE),
        (REMOTE, None, None),
        (REMOTE, None, b""),
        (REMOTE, None, b"\x01\x09\x00"),
        (REMOTE, None, DELETION + b"more"),
    ],
)
def test_what_is_damaged_is_said_in_one_line(formatter: str, key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UsageProblem) as caught:
        show(formatter, key, value)
    output = caught.value.message
    assert output.startswith("could not read the record at offset 9 of partition 2: ") and "\n" not in output


@pytest.mark.parametrize("key, value", [(OFFSET_KEY, OFFSET_VALUE), (GROUP_KEY, GROUP_VALUE)])
def test_cut_anywhere_it_is_damaged_or_nothing(key: bytes, value: bytes) -> None:
    for end in range(len(value)):
        with pytest.raises(UsageProblem):
            show("OffsetsMessageFormatter", key, value[:end])
    for end in range(len(key)):
        with pytest.raises(UsageProblem):
            show("OffsetsMessageFormatter", key[:end], None)


def test_types_that_are_unknown_are_left_out() -> None:
    assert show("OffsetsMessageFormatter", b"\x00\x63what", b"ever") == ""
    assert show("TransactionLogMessageFormatter", b"\xff\xff", None) == ""


def refused(*words: str) -> str:
    result = CliRunner().invoke(main, ["consume", "--topic", "t", *words])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    return line


def test_an_unknown_class_is_told_what_there_is() -> None:
    line = refused("--formatter", "com.example.Mine")
    assert line.startswith("ottla: --formatter com.example.Mine is unknown here; there are ")
    for name in ("DefaultMessageFormatter", "OffsetsMessageFormatter", "RemoteLogMetadataFormatter"):
        assert name in line
    # What a shell leaves of a name whose end it took for a variable.
    line = refused("--formatter", "kafka.coordinator.group.GroupMetadataManager")
    assert "needs single quotes" in line


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (None, None),
        ("OffsetsMessageFormatter", None),
        (f"{TOOLS}.OffsetsMessageFormatter", None),
        ("kafka.tools.DefaultMessageFormatter", f"{TOOLS}.DefaultMessageFormatter."),
        ("kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter", f"{TOOLS}.Offsets"),
    ],
)
def test_old_names_are_told_of(name: str | None, advice: str | None) -> None:
    output = advice_on(name)
    assert output is None if advice is None else output is not None and f"the old name of {advice}" in output


def test_escaped_characters_are_spelled_as_kafka_does() -> None:
    text = as_text("\x1f \\u001f \u007f\t\x0b ö")
    assert text == '"\\u001F \\\\u001f \x7f\\t\\u000B ö"'
    assert json.loads(text) == "\x1f \\u001f \x7f\t\x0b ö"
