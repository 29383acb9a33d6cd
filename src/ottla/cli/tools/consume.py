"""`ottla consume`: records of topics on standard output, as kafka-console-consumer has it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

import click

from ottla.admin.partitions import EARLIEST, LATEST, Partition, leaders, offsets_at
from ottla.admin.record_filter import parse_filter
from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.reading_loop import read_records
from ottla.cli.tools.record_format import Formatter, advice_on, formatter_of
from ottla.cli.tools.record_view import TerminalFormatter
from ottla.cli.tools.values import parse_since
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka import KafkaError as EngineError

    from ottla.client.engine_types import EngineMessage, EngineSettings
    from ottla.schemas.show import Shower

_MAX_AT_ONCE: Final = 500
_TOPIC_TIMEOUT_S: Final = 1.5
_TOPIC_PAUSE_S: Final = 0.02
_GROUP_PREFIX: Final = "console-consumer-"
_FOLLOWED: Final = 10


class FormatterFlags(Flags):
    """The flags of the record formatter."""

    formatter: str | None
    formatter_property: tuple[str, ...]
    property: tuple[str, ...]
    formatter_config: str | None
    key_deserializer: str | None
    value_deserializer: str | None


class ConsumeFlags(FormatterFlags):
    """The flags of `ottla consume`."""

    topic: str | None
    include: str | None
    partition: int | None
    offset: str | None
    from_beginning: bool
    max_messages: int | None
    timeout_ms: int | None
    group: str | None
    isolation_level: str | None
    command_property: tuple[str, ...]
    consumer_property: tuple[str, ...]
    consumer_config: str | None
    follow: bool
    since: str | None
    last: int | None
    until_end: bool
    filter: str | None
    schema_registry: str | None
    pretty: bool
    plain: bool
    skip_message_on_error: bool
    enable_systest_events: bool


@tool(
    "consume",
    click.option("--topic", metavar="NAME", help="The topic to read."),
    click.option("--include", metavar="REGEX", help="Read all topics whose names fit."),
    click.option("--partition", type=int, metavar="NUMBER", help="Read one partition, without a group."),
    click.option("--offset", metavar="OFFSET", help="Where to start: a number, earliest or latest."),
    click.option("--from-beginning", is_flag=True, help="Start with the oldest record."),
    click.option("--max-messages", type=int, metavar="COUNT", help="End after this many records."),
    click.option("--timeout-ms", type=int, metavar="MS", help="End when no record comes for this long."),
    click.option("--group", metavar="NAME", help="Read as a member of this group."),
    click.option("--isolation-level", metavar="LEVEL", help="read_uncommitted or read_committed."),
    click.option("--formatter", metavar="CLASS", help="How records are shown."),
    click.option("--formatter-property", multiple=True, metavar="KEY=VALUE", help="As in print.key=true."),
    click.option("--property", multiple=True, metavar="KEY=VALUE", help="Old for --formatter-property."),
    click.option("--formatter-config", metavar="FILE", help="Properties file for the formatter."),
    click.option("--key-deserializer", metavar="CLASS", help="As in LongDeserializer."),
    click.option("--value-deserializer", metavar="CLASS", help="As in LongDeserializer."),
    click.option("--command-property", multiple=True, metavar="KEY=VALUE", help="A consumer setting."),
    click.option(
        "--consumer-property", multiple=True, metavar="KEY=VALUE", help="Old for --command-property."
    ),
    click.option("--consumer.config", "consumer_config", metavar="FILE", help="Old for --command-config."),
    click.option("--follow", is_flag=True, help="Print the last ten records, then new ones as they come."),
    click.option("--since", metavar="TIME", help="Start this long ago, as in 10m or 2h, or at a moment."),
    click.option("--last", type=int, metavar="COUNT", help="Start this many records before the end."),
    click.option("--until-end", is_flag=True, help="End at the last record of now."),
    click.option("--filter", metavar="CONDITION", help="Only records that fit, as in value.total > 100."),
    click.option(
        "--schema-registry", metavar="URL", help="Show records with schema ids as JSON, by this registry."
    ),
    click.option("--pretty", is_flag=True, help="Columns and colors, as at a terminal."),
    click.option("--plain", is_flag=True, help="Values alone, as for output that is not a terminal."),
    click.option("--skip-message-on-error", is_flag=True, help="Go on after a record that cannot be shown."),
    click.option("--enable-systest-events", is_flag=True, hidden=True),
)
def consume(session: Session, flags: ConsumeFlags) -> None:
    """Print the records of topics."""
    exactly_one(flags, "topic", "include")
    not_with(flags, "property", "formatter_property")
    not_with(flags, "consumer_property", "command_property")
    _check_start(flags)
    formatter = _formatter(session, flags)
    fits = parse_filter(flags.filter) if flags.filter else None
    engine.require_broker(session)
    client = engine.consumer(_consumer_settings(session, flags))
    count: int | None = None
    try:
        with engine.translated_errors():
            if flags.topic is not None:
                await_topic(client, flags.topic)
            partitions = _begin(session, client, flags)
            count = _Reading(session, flags, client, formatter, fits, partitions).run()
    finally:
        client.close()
        if count is not None:
            session.warn(f"Processed a total of {count} messages")
        if flags.enable_systest_events:
            click.echo("shutdown_complete")


def _formatter(session: Session, flags: ConsumeFlags) -> Formatter:
    """Kafka's formatter if flags ask for it or a program reads the output; otherwise the one for people."""
    not_with(flags, "pretty", "plain")
    properties = formatter_properties(flags)
    chosen = flags.formatter or properties or session.as_json or flags.plain
    if flags.pretty or (not chosen and sys.stdout.isatty()):
        return TerminalFormatter(color=sys.stdout.isatty(), show_topic=flags.include is not None)
    formatter = formatter_of(flags.formatter, properties, session.as_json)
    advise_on_formatter(session, flags)
    return formatter


def advise_on_formatter(session: Session, flags: FormatterFlags) -> None:
    """Warn about a class name that Kafka no longer has."""
    advice = advice_on(flags.formatter)
    if advice is not None:
        session.warn(advice)


def _check_start(flags: ConsumeFlags) -> None:
    for name in ("follow", "since", "last"):
        not_with(
            flags, name, "include", "group", "offset", *(("from_beginning",) if name != "follow" else ())
        )
    not_with(flags, "since", "last")
    not_with(flags, "follow", "until_end")
    if flags.partition is None:
        if flags.offset is not None:
            raise click.UsageError("--offset needs --partition")
        return
    if flags.topic is None:
        raise click.UsageError("--partition needs --topic")
    not_with(flags, "from_beginning", "offset")
    text = (flags.offset or "latest").lower()
    if text not in ("earliest", "latest") and not text.isdecimal():
        raise click.UsageError(f"--offset {flags.offset}: expected earliest, latest or a number from 0 on")


def formatter_properties(flags: FormatterFlags) -> dict[str, str]:
    """The formatter's properties from the flags."""
    from ottla.cli.properties_file import read_client_properties

    properties = read_client_properties(flags.formatter_config) if flags.formatter_config else {}
    if flags.key_deserializer:
        properties["key.deserializer"] = flags.key_deserializer
    if flags.value_deserializer:
        properties["value.deserializer"] = flags.value_deserializer
    return properties | engine.parse_properties(flags.formatter_property or flags.property)


def _consumer_settings(session: Session, flags: ConsumeFlags) -> EngineSettings:
    from ottla.cli.properties_file import read_client_properties

    from_file = read_client_properties(flags.consumer_config) if flags.consumer_config else {}
    own = engine.parse_properties(flags.command_property or flags.consumer_property)
    given = {**session.properties, **from_file, **own}
    groups = {place["group.id"] for place in (session.properties, from_file, own) if "group.id" in place}
    groups |= {flags.group} if flags.group else set()
    if len(groups) > 1:
        raise UsageProblem(f"several groups are named: {', '.join(sorted(groups))}")
    if groups and flags.partition is not None:
        raise click.UsageError("--group can't be used with --partition")
    reset = given.get("auto.offset.reset")
    if flags.from_beginning and reset not in (None, "earliest"):
        raise UsageProblem(f"--from-beginning contradicts auto.offset.reset={reset}")
    properties = {
        "client.id": "console-consumer",
        "auto.offset.reset": "earliest" if flags.from_beginning else "latest",
        "isolation.level": "read_uncommitted",
        **from_file,
        **own,
    }
    if flags.until_end:
        properties["enable.partition.eof"] = "true"
    if flags.isolation_level:
        properties["isolation.level"] = flags.isolation_level
    if groups:
        properties["group.id"] = groups.pop()
    else:
        # A name for this run only: nothing is committed for it.
        properties["group.id"] = f"{_GROUP_PREFIX}{time.time_ns() // 1000 % 100_000}"
        if "enable.auto.commit" not in given:
            properties["enable.auto.commit"] = "false"
        if "group.protocol" not in given and flags.topic is not None and _has_new_groups(session):
            # These groups do not wait for more members at their start, which the classic ones do for seconds.
            properties["group.protocol"] = "consumer"
    return engine.settings(session, properties, allow_auto_create_topics=True)


def _has_new_groups(session: Session) -> bool:
    from ottla.wire.apis import ApiKey

    protocol = session.properties.get("security.protocol", "PLAINTEXT").upper()
    return protocol == "PLAINTEXT" and bool(session.cluster.supports(ApiKey.CONSUMER_GROUP_HEARTBEAT))


def await_topic(client: Consumer, topic: str) -> None:
    """Wait until a topic is there that a broker may create because it is asked for.

    It also has the connections and the metadata ready, which librdkafka would otherwise come to later.
    """
    deadline = time.monotonic() + _TOPIC_TIMEOUT_S
    while True:
        found = client.list_topics(topic, timeout=engine.METADATA_TIMEOUT_S).topics[topic]
        if found.error is None and found.partitions:
            return
        if found.error is not None and found.error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise engine.failure(found.error, about=topic)
        if time.monotonic() > deadline:
            raise ApiException(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic '{topic}'; create it with `ottla topics --create --topic {topic}`",
            )
        time.sleep(_TOPIC_PAUSE_S)


def _begin(session: Session, client: Consumer, flags: ConsumeFlags) -> int | None:
    """Subscribe, or assign partitions; the number of partitions if it is known."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    if flags.since or flags.last or (flags.follow and not flags.from_beginning):
        starts = _starts(session, flags)
        client.assign([TopicPartition(topic, number, start) for (topic, number), start in starts.items()])
        return len(starts)
    if flags.partition is not None:
        named = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
        text = (flags.offset or ("earliest" if flags.from_beginning else "latest")).lower()
        start = named[text] if text in named else int(text)
        assert flags.topic is not None
        client.assign([TopicPartition(flags.topic, flags.partition, start)])
        return 1
    # librdkafka takes a name that begins with ^ for a regular expression.
    client.subscribe([flags.topic if flags.topic is not None else f"^({flags.include})$"])
    return len(leaders(session.cluster, [flags.topic])) if flags.until_end and flags.topic else None


def _starts(session: Session, flags: ConsumeFlags) -> dict[Partition, int]:
    """The start offset of each partition for --since, --last and --follow."""
    cluster = session.cluster
    assert flags.topic is not None
    partitions = list(leaders(cluster, [flags.topic]))
    if flags.partition is not None:
        partitions = [each for each in partitions if each[1] == flags.partition]
    ends = offsets_at(cluster, partitions, LATEST)
    if flags.since:
        found = offsets_at(cluster, partitions, parse_since(flags.since))
        return {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}
    firsts = offsets_at(cluster, partitions, EARLIEST)
    count = flags.last if flags.last is not None else _FOLLOWED
    return {each: max(end - count, firsts[each]) for each, end in ends.items()}


def _shower(properties: Mapping[str, str], url: str | None) -> Shower | None:
    """What shows records by the registry of the flag, else of the properties."""
    from ottla.schemas.client import Registry
    from ottla.schemas.show import Shower

    try:
        registry = Registry.of({**properties, "schema.registry.url": url} if url else properties)
    except ValueError as error:
        raise UsageProblem(str(error)) from None
    return None if registry is None else Shower(registry)


class _Reading:
    """Prints records until there are enough, or none comes in time."""

    def __init__(
        self,
        session: Session,
        flags: ConsumeFlags,
        client: Consumer,
        formatter: Formatter,
        fits: Callable[[EngineMessage], bool] | None,
        partitions: int | None,
    ) -> None:
        self._session = session
        self._flags = flags
        self._client = client
        self._formatter = formatter
        self._fits = fits
        self._partitions = partitions
        self._ended: set[Partition] = set()
        self._limit = -1 if flags.max_messages is None else flags.max_messages
        self._count = 0
        self._shower = _shower(session.properties, flags.schema_registry)

    def run(self) -> int:
        """Print records; their number."""
        read_records(self._session, self._flags.timeout_ms, self._more, self._poll, self._take)
        return self._count

    def _more(self) -> bool:
        return (self._limit < 0 or self._count < self._limit) and not self._at_end()

    def _poll(self, wait_s: float) -> list[EngineMessage]:
        # First one record: a request for more would wait until the batch is full.
        records = engine.received(self._client.consume(1, wait_s))
        left = _MAX_AT_ONCE
        if self._limit >= 0 and not self._fits:
            left = min(self._limit - self._count, _MAX_AT_ONCE)
        if records and left > 1:
            records += engine.received(self._client.consume(left - 1, 0))
        if self._shower is not None:
            from ottla.schemas.show import ShownMessage

            shown = [ShownMessage(one, self._shower) if one.error() is None else one for one in records]
            return cast("list[EngineMessage]", shown)
        return records

    def _at_end(self) -> bool:
        if not self._flags.until_end:
            return False
        known = self._partitions
        return len(self._ended) >= (len(self._client.assignment()) or 1 if known is None else known)

    def _take(self, record: EngineMessage) -> None:
        from confluent_kafka import KafkaError as Codes

        error = record.error()
        if error is not None and error.code() == Codes._PARTITION_EOF:
            self._ended.add((record.topic(), record.partition()))
        elif error is not None:
            _note_error(self._session, error)
        elif (self._limit < 0 or self._count < self._limit) and (self._fits is None or self._fits(record)):
            self._count += 1
            _print(self._session, record, self._formatter, self._flags.skip_message_on_error)


def _print(session: Session, record: EngineMessage, formatter: Formatter, skip: bool) -> None:
    try:
        sys.stdout.buffer.write(formatter.format(record))
    except ApiException as error:
        if not skip:
            raise ApiException(
                error.code, f"{error.message}; --skip-message-on-error leaves out such records"
            ) from error
        session.warn(f"A record at offset {record.offset()} is left out: {error.message}")


def _note_error(session: Session, error: EngineError) -> None:
    """Warn about temporary errors; raise the others."""
    from confluent_kafka import KafkaError as Codes

    if error.code() in (Codes.UNKNOWN_TOPIC_OR_PART, Codes._UNKNOWN_TOPIC, Codes._UNKNOWN_PARTITION):
        raise engine.failure(error)
    if error.code() in (Codes.GROUP_AUTHORIZATION_FAILED, Codes.TOPIC_AUTHORIZATION_FAILED) or error.fatal():
        raise engine.failure(error)
    session.warn(error.str())
