"""Redis sink: records as keys, hashes or stream entries, in one MULTI with the offsets: each record once.

The offsets are a hash of Redis, `ottla_connect_offsets:<connector>`. WATCH on it refuses a run that was overtaken.
Redis takes back nothing: a command that it refuses is reported when the others are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed
from ottla.connect.spi import Finding, Place, Refuse, SinkConnector, SinkCycle, SinkWriter, Written

_JSON: Final = JsonConverter({"schemas.enable": "false"})
_TIMEOUT_S: Final = 10.0

RedisClient: TypeAlias = Any
"""A `redis.Redis`; the library's own types leave open whether calls give answers or awaitables."""

Command = tuple[str, *tuple[str | bytes, ...]]


class RedisSink(SinkConnector):
    """`com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector`, and keys of Redis' own connector."""

    java_classes = (
        "com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector",
        "com.redis.kafka.connect.RedisSinkConnector",
    )
    version = "0.0.9"
    extra = "redis"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Where Redis is, and what a record becomes."""
        return ConfigDef(
            [
                ConfigKey(
                    "redis.uri",
                    default="",
                    importance="HIGH",
                    documentation="redis://user:password@host:port/0",
                ),
                ConfigKey(
                    "redis.hosts", "LIST", ["localhost:6379"], "HIGH", "One host and port, without redis.uri"
                ),
                ConfigKey("redis.database", "INT", 0, documentation="The number of the database"),
                ConfigKey("redis.password", "PASSWORD", "", documentation="The password"),
                ConfigKey("redis.command", default="SET", importance="HIGH", valid="[SET, HSET, XADD]"),
                ConfigKey("redis.key.prefix", default="", documentation="In front of each key"),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """A cluster of Redis has no MULTI over all keys."""
        if "," in config.get("redis.hosts", ""):
            return {
                "redis.hosts": ["one host is understood: a cluster of Redis has no transaction over all keys"]
            }
        return {}

    def check(self) -> list[Finding]:
        """Asks for an answer."""
        writer = RedisWriter("check", self.values)
        try:
            writer.positions([], 0)
        except ConnectError as error:
            return [Finding(False, str(error))]
        finally:
            writer.stop()
        return [Finding(True, f"{writer.where} answers")]

    def writer(self) -> SinkWriter:
        """A writer with one connection."""
        return RedisWriter(self.config["name"], self.values)


class RedisWriter(SinkWriter):
    """One connection of one connector."""

    idempotent = True  # the hash of offsets tells what was written

    def __init__(self, connector: str, values: ConfigValues) -> None:
        self._values = dict(values)
        self._hash = f"ottla_connect_offsets:{connector}"
        self._client: RedisClient = None
        self._commands: list[tuple[SinkRecord, Command]] = []
        self._refuse: Refuse | None = None
        self.where: str = values["redis.uri"].rpartition("@")[2] or values["redis.hosts"][0]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None, "_refuse": None}

    def _connected(self) -> RedisClient:
        if self._client is None:
            import redis

            if self._values["redis.uri"]:
                self._client = redis.Redis.from_url(
                    self._values["redis.uri"],
                    socket_timeout=_TIMEOUT_S,
                    socket_connect_timeout=_TIMEOUT_S,
                )
            else:
                host, _, port = self._values["redis.hosts"][0].partition(":")
                self._client = redis.Redis(
                    host,
                    int(port or 6379),
                    self._values["redis.database"],
                    self._values["redis.password"] or None,
                    socket_timeout=_TIMEOUT_S,
                    socket_connect_timeout=_TIMEOUT_S,
                )
        return self._client

    def _failed(self, error: Exception) -> ConnectError:
        import redis

        refused = isinstance(error, redis.AuthenticationError | redis.ResponseError)
        passing = isinstance(error, redis.ConnectionError | redis.TimeoutError | redis.WatchError)
        kind = Retriable if passing and not refused else TaskFailed
        return kind(f"Redis at {self.where} does not do it: {error}")

    def positions(self, places: Iterable[Place], lineage: int) -> Mapping[Place, int]:
        """The offsets that the keys stand for."""
        import redis

        wanted = set(places)
        try:
            stored = self._connected().hgetall(self._hash)
        except redis.RedisError as error:
            raise self._failed(error) from error
        return {place: offset for place, offset in _offsets(stored, lineage).items() if place in wanted}

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        """Prepares the commands; they run together in `commit`."""
        self._commands, self._refuse = [], refuse
        for record in records:
            try:
                self._commands.append((record, self._command(record)))
            except DataError as error:
                refuse(record, error)
        return len(self._commands)

    def _command(self, record: SinkRecord) -> Command:
        command = self._values["redis.command"]
        place = f"{record.original_topic}-{record.original_partition}@{record.offset}"
        prefix = self._values["redis.key.prefix"].encode()
        if command == "XADD":
            fields: list[str | bytes] = [b"value", _bytes(record.value_schema, record.value)]
            if record.key is not None:
                fields += [b"key", _bytes(record.key_schema, record.key)]
            return ("XADD", prefix + record.topic.encode(), "*", *fields)
        if record.key is None:
            raise DataError(f"record {place} has no key, which names its entry in Redis")
        key = prefix + _bytes(record.key_schema, record.key)
        if record.value is None:
            return ("DEL", key)
        if command == "SET":
            return ("SET", key, _bytes(record.value_schema, record.value))
        return ("HSET", key, *_fields(record, place))

    def commit(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """All commands and the offsets in one MULTI."""
        import redis

        try:
            with self._connected().pipeline(transaction=True) as pipe:
                pipe.watch(self._hash)
                stored = _offsets(pipe.hgetall(self._hash), cycle.lineage)
                for one in cycle.ranges:
                    if stored.get(Place(one.topic, one.partition), -1) > one.start:
                        raise Retriable(f"another run of the connector has written to Redis at {self.where}")
                pipe.multi()
                for _, command in self._commands:
                    pipe.execute_command(*command)
                for one in cycle.ranges:
                    pipe.hset(self._hash, f"{one.topic}-{one.partition}", f"{cycle.lineage}:{one.end}")
                results = pipe.execute(raise_on_error=False)
        except redis.RedisError as error:
            raise self._failed(error) from error
        done, self._commands = self._commands, []
        for (record, command), result in zip(done, results, strict=False):
            if isinstance(result, redis.ResponseError) and self._refuse is not None:
                self._refuse(record, DataError(f"Redis refuses {command[0]}: {result}"))

    def abort(self, cycle: SinkCycle, messages: Sequence[Written]) -> None:
        """Forgets the commands."""
        self._commands = []

    def stop(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _offsets(stored: Mapping[bytes, bytes], lineage: int) -> dict[Place, int]:
    found = {}
    for place, noted in stored.items():
        of, _, offset = noted.decode().partition(":")
        topic, _, partition = place.decode().rpartition("-")
        if int(of) == lineage:
            found[Place(topic, int(partition))] = int(offset)
    return found


def _bytes(schema: Schema | None, value: ConnectValue) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return _JSON.from_connect("", schema, value) or b""


def _fields(record: SinkRecord, place: str) -> list[str | bytes]:
    value = record.value
    named: dict[str, tuple[Schema | None, ConnectValue]]
    if isinstance(value, Struct):
        named = {at.name: (at.schema, value.get(at.name)) for at in value.schema.fields}
    elif isinstance(value, dict):
        named = {str(key): (None, one) for key, one in value.items()}
    else:
        raise DataError(
            f"record {place} has no fields, which HSET needs: use SET, or a converter with structs"
        )
    found = [
        part
        for name, (schema, one) in named.items()
        if one is not None
        for part in (name, _bytes(schema, one))
    ]
    if not found:
        raise DataError(f"record {place} has only null fields, which a hash of Redis cannot hold")
    return found
