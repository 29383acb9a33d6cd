"""`ottla console-share-consumer`: records of a queue on standard output, as kafka-console-share-consumer has it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, cast

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Session, not_with, require, tool
from ottla.cli.tools.consume import FormatterFlags, advise_on_formatter, await_topic, formatter_properties
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.reading_loop import read_records
from ottla.cli.tools.record_format import Formatter, formatter_of
from ottla.errors import ApiException

if TYPE_CHECKING:
    from confluent_kafka import Message, ShareConsumer

    from ottla.client.engine_types import EngineMessage

_DEFAULT_GROUP: Final = "console-share-consumer"


class ConsoleShareConsumerFlags(FormatterFlags):
    """The flags of `ottla console-share-consumer`."""

    topic: str
    group: str | None
    max_messages: int | None
    timeout_ms: int | None
    reject: bool
    release: bool
    reject_message_on_error: bool
    command_property: tuple[str, ...]
    consumer_property: tuple[str, ...]
    consumer_config: str | None
    enable_systest_events: bool


@tool(
    "console-share-consumer",
    click.option("--topic", metavar="NAME", help="The topic to read."),
    click.option("--group", metavar="NAME", help=f"The share group; {_DEFAULT_GROUP} without it."),
    click.option("--max-messages", type=int, metavar="COUNT", help="End after so many records."),
    click.option("--timeout-ms", type=int, metavar="MS", help="End when no record comes for so long."),
    click.option("--reject", is_flag=True, help="Reject the records: they are not delivered again."),
    click.option("--release", is_flag=True, help="Release the records: they are delivered again."),
    click.option("--reject-message-on-error", is_flag=True, help="Reject what cannot be shown, and go on."),
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
    click.option("--consumer-config", metavar="FILE", help="Old for --command-config."),
    click.option("--enable-systest-events", is_flag=True, hidden=True),
)
def console_share_consumer(session: Session, flags: ConsoleShareConsumerFlags) -> None:
    """Print the records of a topic as a member of a share group."""
    require(flags, "topic")
    not_with(flags, "reject", "release")
    not_with(flags, "property", "formatter_property")
    not_with(flags, "consumer_property", "command_property")
    formatter = formatter_of(flags.formatter, formatter_properties(flags), session.as_json)
    advise_on_formatter(session, flags)
    engine.require_broker(session)
    client = _client(session, flags)
    count: int | None = None
    try:
        with engine.translated_errors():
            client.subscribe([flags.topic])
            count = _Reading(session, flags, client, formatter).run()
            client.commit_sync()
    finally:
        client.close()
        if count is not None:
            session.warn(f"Processed a total of {count} messages")
        if flags.enable_systest_events:
            click.echo("shutdown_complete")


def _client(session: Session, flags: ConsoleShareConsumerFlags) -> ShareConsumer:
    from ottla.cli.properties_file import read_client_properties

    properties = {"client.id": "console-share-consumer"}
    if flags.consumer_config:
        properties |= read_client_properties(flags.consumer_config)
    properties |= engine.parse_properties(flags.command_property or flags.consumer_property)
    named = {name for name in (flags.group, properties.get("group.id")) if name}
    if len(named) > 1:
        raise UsageProblem(f"several groups are named: {', '.join(sorted(named))}")
    properties["group.id"] = named.pop() if named else _DEFAULT_GROUP
    properties["share.acknowledgement.mode"] = "explicit"
    finder = engine.consumer(engine.settings(session, {"group.id": "none"}, allow_auto_create_topics=True))
    try:
        with engine.translated_errors():
            await_topic(finder, flags.topic)
    finally:
        finder.close()
    return engine.share_consumer(engine.settings(session, properties))


class _Reading:
    """Prints records and acknowledges each of them."""

    def __init__(
        self,
        session: Session,
        flags: ConsoleShareConsumerFlags,
        client: ShareConsumer,
        formatter: Formatter,
    ) -> None:
        from confluent_kafka import AcknowledgeType

        self._session = session
        self._flags = flags
        self._client = client
        self._formatter = formatter
        self._limit = -1 if flags.max_messages is None else flags.max_messages
        self._count = 0
        self._verdict = AcknowledgeType.ACCEPT
        if flags.reject or flags.release:
            self._verdict = AcknowledgeType.REJECT if flags.reject else AcknowledgeType.RELEASE

    def run(self) -> int:
        """Print records; their number."""
        read_records(self._session, self._flags.timeout_ms, self._more, self._poll, self._take)
        return self._count

    def _more(self) -> bool:
        return self._limit < 0 or self._count < self._limit

    def _poll(self, wait_s: float) -> list[EngineMessage]:
        return engine.received(self._client.poll(wait_s) or [])

    def _take(self, record: EngineMessage) -> None:
        from confluent_kafka import AcknowledgeType

        engine.check(record)
        message = cast("Message", record)
        if not self._more():
            # More came than was asked for: another consumer of the group gets it.
            self._client.acknowledge(message, AcknowledgeType.RELEASE)
            return
        self._count += 1
        text = _shown(self._session, record, self._formatter, self._flags.reject_message_on_error)
        sys.stdout.buffer.write(text or b"")
        self._client.acknowledge(message, AcknowledgeType.REJECT if text is None else self._verdict)


def _shown(session: Session, record: EngineMessage, formatter: Formatter, forgiving: bool) -> bytes | None:
    """The text of a record; None for one that cannot be shown."""
    try:
        return formatter.format(record, record.delivery_count())
    except ApiException as error:
        if not forgiving:
            raise ApiException(
                error.code, f"{error.message}; --reject-message-on-error rejects such records"
            ) from error
        session.warn(f"The record at offset {record.offset()} is rejected: {error.message}")
        return None
