"""librdkafka for the tools that move records: its settings from Kafka's, and its errors as one line.

The settings that people know are those of the Java clients; librdkafka has its own names for some of them and
none for others.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, cast

from ottla.admin.connection import ConnectionFailed
from ottla.admin.errors import advice
from ottla.cli.tools.base import Session, parse_bootstrap
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.security import OAUTHBEARER, is_pem, jaas_options
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaException, Message, Producer, ShareConsumer
    from confluent_kafka import KafkaError as EngineError

    from ottla.client.engine_types import EngineMessage, EngineSettings

METADATA_TIMEOUT_S: Final = 10.0
_REPORT_EACH_MS: Final = 200
_TOKEN_LIFETIME_S: Final = 300
"""Of a token that does not say when it ends."""

_RENAMED: Final = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "ssl.truststore.location": "ssl.ca.location",
}
_OF_REGISTRIES: Final = ("schema.registry.", "basic.auth.")
_WITHOUT_MEANING: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "buffer.memory",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "partitioner.class",
        "sasl.jaas.config",
        "ssl.keystore.type",
        "ssl.truststore.type",
        "value.deserializer",
        "value.serializer",
    }
)
"""Settings of the Java clients without a counterpart here; their effect is already given or does not matter."""

_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def parse_properties(words: Iterable[str]) -> dict[str, str]:
    """Settings from `key=value` words; a key alone has an empty value."""
    pairs = (word.partition("=") for word in words)
    return {key.strip(): value for key, _, value in pairs}


def settings(session: Session, properties: Mapping[str, str], **more: object) -> EngineSettings:
    """librdkafka's settings for a client of this session."""
    merged: EngineSettings = {"log_level": 0}
    for key, value in {**session.properties, **properties}.items():
        if key == "sasl.jaas.config":
            words = jaas_options(value)
            merged |= {f"sasl.{name}": words[name] for name in ("username", "password") if name in words}
        elif key == "partition.assignment.strategy":
            names = [word.strip().rpartition(".")[2] for word in value.split(",")]
            merged[key] = ",".join(_ASSIGNORS.get(name, name) for name in names)
        elif key == "ssl.keystore.location" and is_pem(session.properties):
            merged |= {"ssl.certificate.location": value, "ssl.key.location": value}
        elif key == "ssl.endpoint.identification.algorithm":
            merged[key] = value.strip() or "none"
        elif key not in _WITHOUT_MEANING and not key.startswith(_OF_REGISTRIES) and value != "":
            merged[_RENAMED.get(key, key)] = value
    if _uses_tokens(merged):
        merged = _with_tokens(merged, {**session.properties, **properties})
    merged |= {key.replace("_", "."): value for key, value in more.items()}
    merged["bootstrap.servers"] = session.bootstrap
    return merged


def _uses_tokens(merged: EngineSettings) -> bool:
    mechanism = merged.get("sasl.mechanism") or merged.get("sasl.mechanisms") or ""
    return str(mechanism).upper() == OAUTHBEARER and str(merged.get("security.protocol")).startswith("SASL")


def _with_tokens(merged: EngineSettings, properties: Mapping[str, str]) -> EngineSettings:
    """librdkafka asks us for tokens: we read Kafka's keys, of which it knows only some."""
    from ottla.credentials.oauth import token_source

    try:
        source = token_source(properties, jaas_options(properties.get("sasl.jaas.config", "")))
    except ValueError as error:
        raise UsageProblem(str(error)) from None

    def give(_: str) -> tuple[str, float]:
        value, expires_at_s = source.token()
        return value.reveal(), expires_at_s or time.time() + _TOKEN_LIFETIME_S

    kept = {key: value for key, value in merged.items() if not key.startswith("sasl.oauthbearer.")}
    return {**kept, "oauth_cb": give}


def require_broker(session: Session) -> None:
    """Raise if no bootstrap address accepts connections: librdkafka would try forever."""
    failures: list[ConnectionFailed] = []
    for host, port in parse_bootstrap(session.bootstrap):
        try:
            socket.create_connection((host, port), 10).close()
            return
        except OSError as error:
            failures.append(ConnectionFailed(f"{host}:{port}", error))
    raise failures[0]


class Metrics:
    """librdkafka's statistics for --print-metrics: its last report, with one name and value on each line."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._report = ""
        self.settings: EngineSettings = {}
        if wanted:
            self.settings = {"statistics.interval.ms": _REPORT_EACH_MS, "stats_cb": self._take}

    def _take(self, report: str) -> None:
        self._report = report

    def wait(self, client: Producer | Consumer | ShareConsumer) -> None:
        """Wait until there is a report: a short run may end before the first."""
        deadline = time.monotonic() + 10 * _REPORT_EACH_MS / 1000
        while self._wanted and not self._report and time.monotonic() < deadline:
            client.poll(_REPORT_EACH_MS / 1000)

    def show(self, session: Session) -> None:
        if not self._report:
            return
        import json

        values = dict(_flat("", json.loads(self._report)))
        width = max(map(len, values))
        session.print(f"\n{'Metric Name'.ljust(width)}   Value")
        for name, value in sorted(values.items()):
            session.print(f"{name.ljust(width)} : {value}")


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The values in a document, by the path to each."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, each in value.items():
        yield from _flat(f"{name}:{key}" if name else key, each)


def producer(config: EngineSettings) -> Producer:
    """A librdkafka producer; keys land on the partitions that the Java clients choose."""
    from confluent_kafka import KafkaException, Producer

    config.setdefault("partitioner", "murmur2_random")
    try:
        return Producer(config)
    except KafkaException as error:
        raise refused(error) from None


def consumer(config: EngineSettings) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    try:
        return Consumer(config)
    except KafkaException as error:
        raise refused(error) from None


def share_consumer(config: EngineSettings) -> ShareConsumer:
    """A librdkafka consumer of a share group."""
    import confluent_kafka

    if not hasattr(confluent_kafka, "ShareConsumer"):
        raise UsageProblem("this version of confluent-kafka has no share consumer; install a newer one")
    try:
        return confluent_kafka.ShareConsumer(config)
    except confluent_kafka.KafkaException as error:
        raise refused(error) from None


def refused(error: KafkaException) -> UsageProblem:
    return UsageProblem(f"the client refuses its settings: {error.args[0].str()}")


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Turns librdkafka's exceptions into ours."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise failure(error.args[0]) from None


def received(messages: Iterable[Message]) -> list[EngineMessage]:
    """Records from a consumer, with the types that consumed records have."""
    return cast("list[EngineMessage]", list(messages))


def check(record: EngineMessage) -> None:
    """Raise the error that came in place of a record."""
    error = record.error()
    if error is not None:
        raise failure(error)


def failure(error: EngineError, about: str = "") -> ApiException:
    """An ApiException for an error of librdkafka. Its local errors have negative codes."""
    code = ErrorCode.of(error.code()) if error.code() > 0 else ErrorCode.NETWORK_EXCEPTION
    text = advice(code) or error.str()
    return ApiException(code, f"{about}: {text}" if about else text)
