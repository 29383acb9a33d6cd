"""Words of the tools' command lines: flags as Kafka's parsers take them, values, lines and records."""

from __future__ import annotations

import io
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ottla.cli.tools import base
from ottla.cli.tools.configs import parse_settings
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.names import matcher
from ottla.cli.tools.produce import LineReader
from ottla.cli.tools.record_format import DefaultFormatter
from ottla.cli.tools.registry import TOOLS, load
from ottla.cli.tools.topics import parse_assignment
from ottla.cli.tools.values import java_double, parse_datetime, parse_duration_ms


class EchoFlags(base.Flags):
    topic: str | None
    partitions: int | None
    props: tuple[str, ...]
    state: str | None
    verbose: bool


def make_tool(**options: Any) -> tuple[base.Tool, list[tuple[base.Session, EchoFlags]]]:
    calls: list[tuple[base.Session, EchoFlags]] = []

    @base.tool(
        "echo",
        click.option("--topic"),
        click.option("--topic-partitions"),
        click.option("--partitions", type=int),
        click.option("--props", multiple=True),
        click.option("--state", is_flag=False, flag_value=""),
        click.option("--verbose", is_flag=True),
        **options,
    )
    def echo(session: base.Session, flags: EchoFlags) -> None:
        calls.append((session, flags))

    return echo, calls


def run(*words: str, env: dict[str, str] | None = None, **options: Any) -> tuple[base.Session, EchoFlags]:
    echo, calls = make_tool(**options)
    result = CliRunner().invoke(echo, words, env={"OTTLA_BOOTSTRAP": None, **(env or {})})
    assert result.exit_code == 0, result.output
    return calls[0]


def test_flags_take_values_after_a_space_or_an_equals_sign_and_may_be_shortened() -> None:
    _, flags = run("--topic=orders", "--part", "3", "--verb")
    assert (flags.topic, flags.partitions, flags.verbose) == ("orders", 3, True)


def test_a_full_name_is_not_taken_for_the_beginning_of_another() -> None:
    _, flags = run("--topic", "--verbose")
    assert flags.topic == "--verbose" and not flags.verbose


def test_an_optional_value_may_be_missing() -> None:
    assert run("--state", "--verbose")[1].state == ""
    assert run("--state", "Stable")[1].state == "Stable"
    assert run("--verbose")[1].state is None


def test_a_greedy_flag_takes_all_values_up_to_the_next_flag() -> None:
    _, flags = run("--props", "acks=1", "linger.ms=5", "--topic", "t", greedy=["--props"])
    assert flags.props == ("acks=1", "linger.ms=5") and flags.topic == "t"


def test_the_address_comes_from_the_flag_then_the_environment_then_the_default() -> None:
    env = {"OTTLA_BOOTSTRAP": "b:2"}
    assert run("--bootstrap-server", "a:1", env=env)[0].bootstrap == "a:1"
    assert run(env=env)[0].bootstrap == "b:2"
    assert run()[0].bootstrap == "localhost:9092"
    assert run("--broker-list", "c:3")[0].bootstrap == "c:3"


def test_old_spellings_get_one_line_of_advice() -> None:
    echo, _ = make_tool()
    for words in (["--zookeeper", "z:2181"], ["--broker-list", "b:9092"]):
        result = CliRunner().invoke(echo, words)
        assert result.exit_code == 0 and len(result.stderr.splitlines()) == 1


def test_a_wrong_flag_is_refused_in_one_line() -> None:
    echo, calls = make_tool()
    result = CliRunner().invoke(echo, ["--bogus"])
    assert result.exit_code == 1 and not calls
    assert result.stderr.startswith("ottla: ") and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_every_tool_has_help(name: str) -> None:
    command = load(name)
    assert command is not None
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0 and "--json" in result.output


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("[::1]:9093", [("::1", 9093)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert base.parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", "a:b", ":9092", "a:0", "a:99999"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageProblem):
        base.parse_bootstrap(text)


def test_topics_by_regular_expression() -> None:
    fits = matcher('"orders, visit.*"')
    assert [name for name in ("orders", "orders2", "visits", "my-orders") if fits(name)] == [
        "orders",
        "visits",
    ]
    with pytest.raises(UsageProblem):
        matcher("*")


def test_settings_with_commas_in_brackets() -> None:
    assert parse_settings("a=1, b = [x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    with pytest.raises(UsageProblem):
        parse_settings("a")


def test_replica_assignments() -> None:
    assert parse_assignment("1:2,2:3") == [[1, 2], [2, 3]]
    for text in ("1:1", "1:2,3", "one"):
        with pytest.raises(UsageProblem):
            parse_assignment(text)


def test_moments_and_durations() -> None:
    assert parse_datetime("1970-01-01T00:00:01.500") == 1500
    assert parse_datetime("1970-01-01T01:00:00.000+01:00") == 0
    assert parse_datetime("1970-01-01T01:00:00.000+0100") == 0
    assert parse_datetime("1970-01-01T00:00:00Z") == 0
    assert parse_duration_ms("--by-duration", "P1DT2H3M4.5S") == 93_784_500
    for text in ("P", "PT", "1D", "P1DT", ""):
        with pytest.raises(UsageProblem):
            parse_duration_ms("--by-duration", text)


def test_numbers_as_java_writes_them() -> None:
    numbers = (1024.0, 0.5, 10_000_000.0, 123_456_789.0, 0.0001, 1e21, 0.0)
    assert [java_double(each) for each in numbers] == [
        *("1024.0", "0.5", "1.0E7", "1.23456789E8", "1.0E-4", "1.0E21", "0.0"),
    ]


def read(text: bytes, **properties: str) -> list[Any]:
    settings = {key.replace("_", "."): value for key, value in properties.items()}
    return list(LineReader.configured(settings).read(io.BytesIO(text)))


def test_lines_are_values() -> None:
    assert read(b"one\r\n\ntwo") == [([], None, b"one"), ([], None, b""), ([], None, b"two")]


def test_lines_with_keys_and_headers() -> None:
    got = read(b"a:1,b:2\tk=v=w\n", parse_headers="true", parse_key="true", key_separator="=")
    assert got == [([("a", b"1"), ("b", b"2")], b"k", b"v=w")]


def test_a_marker_stands_for_null() -> None:
    got = read(b"~\t~\t~\n", parse_headers="true", parse_key="true", null_marker="~")
    assert got == [([], None, None)]


def test_a_line_without_its_separator_is_refused_or_taken_whole() -> None:
    with pytest.raises(UsageProblem, match="line 2"):
        read(b"a\tb\nc\n", parse_key="true")
    assert read(b"c\n", parse_key="true", ignore_error="true") == [([], None, b"c")]


def test_separators_must_differ() -> None:
    with pytest.raises(UsageProblem):
        read(b"", headers_separator=":")


class Record:
    """What librdkafka hands over, as far as formatters look at it."""

    def __init__(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> None:
        self.key = lambda: key
        self.value = lambda: value
        self.headers = lambda: headers
        self.partition = lambda: 2
        self.offset = lambda: 7
        self.topic = lambda: "orders"
        self.timestamp = lambda: (1, 1234)


def show(record: Record, **properties: str) -> bytes:
    settings = {key.replace("_", "."): value for key, value in properties.items()}
    return DefaultFormatter.configured(settings).format(record)


def test_columns_of_a_record() -> None:
    record = Record(b"k", b"v", [("h", b"1"), ("n", None)])
    assert show(record) == b"v\n"
    assert show(record, print_key="true", key_separator="=") == b"k=v\n"
    everything = dict.fromkeys(("timestamp", "partition", "offset", "headers", "key"), "true")
    got = show(record, **{f"print_{name}": value for name, value in everything.items()})
    assert got == b"CreateTime:1234\tPartition:2\tOffset:7\th:1,n:null\tk\tv\n"


def test_numbers_in_records() -> None:
    record = Record(None, (258).to_bytes(8, "big"), [])
    assert (
        show(record, value_deserializer="org.apache.kafka.common.serialization.LongDeserializer") == b"258\n"
    )
    with pytest.raises(UsageProblem):
        show(record, value_deserializer="IntegerDeserializer")
    with pytest.raises(UsageProblem):
        show(record, value_deserializer="com.example.Mine")
