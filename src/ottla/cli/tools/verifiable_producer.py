"""`ottla verifiable-producer`: numbers into a topic and one line of JSON for each, as kafka-verifiable-producer."""

from __future__ import annotations

import itertools
import json
import signal
import time
from typing import TYPE_CHECKING

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, require, tool
from ottla.cli.tools.values import now_ms

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as EngineError
    from confluent_kafka import Message, Producer


class VerifiableProducerFlags(Flags):
    """The flags of `ottla verifiable-producer`."""

    topic: str
    max_messages: int
    throughput: int
    acks: str
    producer_config: str | None
    message_create_time: int
    value_prefix: int | None
    repeating_keys: int | None


@tool(
    "verifiable-producer",
    click.option("--topic", metavar="NAME", help="The topic to write to."),
    click.option(
        "--max-messages", type=int, default=-1, metavar="COUNT", help="How many; -1: until it is stopped."
    ),
    click.option(
        "--throughput", type=int, default=-1, metavar="RATE", help="Records per second at most; -1: any."
    ),
    click.option(
        "--acks", type=click.Choice(["0", "1", "-1"]), default="-1", help="The acks of the producer."
    ),
    click.option("--producer.config", "producer_config", metavar="FILE", help="Old for --command-config."),
    click.option(
        "--message-create-time", type=int, default=-1, metavar="MS", help="The timestamp to start from."
    ),
    click.option("--value-prefix", type=int, metavar="NUMBER", help="Values are NUMBER.0, NUMBER.1, ..."),
    click.option("--repeating-keys", type=int, metavar="COUNT", help="Keys from 0 on, so many of them."),
)
def verifiable_producer(session: Session, flags: VerifiableProducerFlags) -> None:
    """Write increasing numbers and print the result of each."""
    require(flags, "topic")
    from ottla.cli.properties_file import read_client_properties

    properties = read_client_properties(flags.producer_config) if flags.producer_config else {}
    engine.require_broker(session)
    client = engine.producer(engine.settings(session, {"acks": flags.acks, "retries": "0", **properties}))
    _Run(flags, client).run()


def print_event(name: str, **more: object) -> None:
    """One event, as a line of JSON."""
    click.echo(json.dumps({"timestamp": now_ms(), "name": name, **more}, separators=(",", ":")))


class _Run:
    """One run, until it is done or is asked to stop."""

    def __init__(self, flags: VerifiableProducerFlags, client: Producer) -> None:
        self._flags = flags
        self._client = client
        self._sent = self._acked = 0
        self._stopped = False

    def run(self) -> None:
        flags, start = self._flags, time.monotonic()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        print_event("startup_complete")
        start_ms = created_ms = flags.message_create_time
        begun_ms = now_ms()
        keys = (
            itertools.cycle(range(flags.repeating_keys)) if flags.repeating_keys else itertools.repeat(None)
        )
        for number, key in enumerate(keys):
            if self._stopped or 0 <= flags.max_messages <= number:
                break
            self._send(None if key is None else str(key), number, created_ms)
            if start_ms >= 0:
                created_ms += now_ms() - begun_ms
            if flags.throughput > 0:
                time.sleep(max(0.0, self._sent / flags.throughput - (time.monotonic() - start)))
        self._client.flush()
        print_event("shutdown_complete")
        rate = self._acked / max(time.monotonic() - start, 1e-3)
        counts = {"sent": self._sent, "acked": self._acked}
        print_event("tool_data", **counts, target_throughput=flags.throughput, avg_throughput=rate)

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _send(self, key: str | None, number: int, created_ms: int) -> None:
        prefix = "" if self._flags.value_prefix is None else f"{self._flags.value_prefix}."
        topic, value = self._flags.topic, f"{prefix}{number}"
        self._sent += 1
        while True:
            try:
                if created_ms >= 0:
                    self._client.produce(topic, value, key, -1, self._delivered, timestamp=created_ms)
                else:
                    self._client.produce(topic, value, key, -1, self._delivered)
                break
            except BufferError:
                self._client.poll(0.05)
        self._client.poll(0)

    def _delivered(self, error: EngineError | None, message: Message) -> None:
        key, value = (None if data is None else data.decode() for data in (message.key(), message.value()))
        about = {"key": key, "value": value, "topic": message.topic()}
        if error is not None:
            print_event("producer_send_error", **about, exception=error.name(), message=error.str())
            return
        self._acked += 1
        print_event("producer_send_success", **about, partition=message.partition(), offset=message.offset())
