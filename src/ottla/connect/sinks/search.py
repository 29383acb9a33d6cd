"""Search sink: records as documents of OpenSearch or Elasticsearch, each once however often it is sent.

A document's version is the offset of its record. The server keeps the newest: a record that comes a second time changes
nothing, and one that comes late is answered with 409, which is in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import Struct
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed
from ottla.connect.spi import Finding, Refuse, SinkConnector, SinkCycle, SinkWriter
from ottla.json_types import JsonObject

if TYPE_CHECKING:
    from opensearchpy import OpenSearch

_JSON: Final = JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})
_LONGEST_ID: Final = 512
_BAD_INDEX: Final = re.compile(r"[\\/*?\"<>| ,#:]")
_PASSING: Final = frozenset((408, 429, 500, 502, 503, 504))
_IN_ORDER: Final = frozenset((200, 201, 409))
_SHOWN: Final = 300
_TLS: Final = "elastic.https."


class SearchSink(SinkConnector):
    """Confluent's `ElasticsearchSinkConnector` and Aiven's `OpensearchSinkConnector`, which share their keys."""

    java_classes = (
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
    )
    version = "14.1.0"
    extra = "search"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Where the server is, and what a record becomes."""
        nulls = "What becomes of a record without a value"
        return ConfigDef(
            [
                ConfigKey("connection.url", "LIST", importance="HIGH", documentation="http://host:9200, ..."),
                ConfigKey("connection.username", default=None, documentation="The user"),
                ConfigKey("connection.password", "PASSWORD", None, documentation="The password"),
                ConfigKey("connection.timeout.ms", "INT", 1000, "LOW", "Until a connection", valid="[1,...]"),
                ConfigKey("read.timeout.ms", "INT", 30_000, "LOW", "Until an answer", valid="[1,...]"),
                ConfigKey("batch.size", "INT", 2000, documentation="Documents of a request", valid="[1,...]"),
                ConfigKey("bulk.size.bytes", "INT", 5 << 20, "LOW", "Bytes of a request", valid="[1,...]"),
                ConfigKey(
                    "key.ignore", "BOOLEAN", False, documentation="Name documents by topic+partition+offset"
                ),
                ConfigKey(
                    "schema.ignore", "BOOLEAN", True, "LOW", "Has no effect: the server makes mappings"
                ),
                ConfigKey("write.method", default="INSERT", valid="[INSERT, UPSERT]"),
                ConfigKey(
                    "behavior.on.null.values",
                    default="FAIL",
                    documentation=nulls,
                    valid="[FAIL, IGNORE, DELETE]",
                ),
                ConfigKey("behavior.on.malformed.documents", default="FAIL", valid="[FAIL, IGNORE, WARN]"),
                ConfigKey(
                    "index.name", default="", documentation="The index; without it the topic in small letters"
                ),
                ConfigKey(
                    "max.retries", "INT", 5, "LOW", "Has no effect: requests are tried until they pass"
                ),
                ConfigKey(
                    "retry.backoff.ms", "INT", 100, "LOW", "Has no effect: see ottla.restart.backoff.ms"
                ),
                *(
                    ConfigKey(f"{_TLS}{name}", kind, None, "LOW", "TLS to the server, as in Kafka")
                    for name, kind in (
                        ("ssl.truststore.type", "STRING"),
                        ("ssl.truststore.location", "STRING"),
                        ("ssl.truststore.password", "PASSWORD"),
                        ("ssl.keystore.type", "STRING"),
                        ("ssl.keystore.location", "STRING"),
                        ("ssl.keystore.password", "PASSWORD"),
                        ("ssl.key.password", "PASSWORD"),
                    )
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Addresses, a whole login, an index that can be."""
        found: dict[str, list[str]] = {}
        for url in filter(None, (one.strip() for one in config.get("connection.url", "").split(","))):
            if "${" not in url and not url.startswith(("http://", "https://")):
                found["connection.url"] = [
                    f"{url} is no address: write http://host:9200 or https://host:9200"
                ]
        if bool(config.get("connection.username")) != bool(config.get("connection.password")):
            text = "connection.username and connection.password belong together: set both or none"
            found["connection.username"] = found["connection.password"] = [text]
        index = config.get("index.name", "")
        if index and (wrong := _wrong_index(index)):
            found["index.name"] = [wrong]
        return found

    def check(self) -> list[Finding]:
        """Asks the server what it is."""
        writer = SearchWriter(self.values)
        try:
            return [Finding(True, f"{writer.where} is {writer.server()}")]
        except ConnectError as error:
            return [Finding(False, str(error))]
        finally:
            writer.stop()

    def writer(self) -> SinkWriter:
        """A writer with one client."""
        return SearchWriter(self.values)


class SearchWriter(SinkWriter):
    """One client of one connector."""

    idempotent = True
    parallel = True

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._client: OpenSearch | None = None
        self.where: str = ", ".join(one.rpartition("@")[2] for one in values["connection.url"])

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None}

    def _connected(self) -> OpenSearch:
        if self._client is None:
            from opensearchpy import OpenSearch

            user, password = self._values["connection.username"], self._values["connection.password"]
            uses_tls = any(one.startswith("https://") for one in self._values["connection.url"])
            self._client = OpenSearch(
                self._values["connection.url"],
                timeout=self._values["read.timeout.ms"] / 1000,
                max_retries=0,
                http_auth=(user, str(password)) if user else None,
                ssl_context=_tls(self._values) if uses_tls else None,
            )
        return self._client

    def _failed(self, error: Exception) -> ConnectError:
        from opensearchpy.exceptions import ConnectionError as NoConnection
        from opensearchpy.exceptions import TransportError

        status = getattr(error, "status_code", None) if isinstance(error, TransportError) else None
        if status in (401, 403):
            return TaskFailed(
                f"{self.where} refuses the login: {status}; see connection.username and its rights"
            )
        if isinstance(error, NoConnection) or status in _PASSING:
            return Retriable(f"{self.where} cannot be reached or is busy: {str(error)[:_SHOWN]}")
        return TaskFailed(f"{self.where} does not do it: {str(error)[:_SHOWN]}")

    def server(self) -> str:
        """What answers."""
        from opensearchpy.exceptions import OpenSearchException

        try:
            found = self._connected().info()["version"]
        except (OpenSearchException, KeyError, TypeError) as error:
            raise self._failed(error) from error
        return f"{found.get('distribution', 'elasticsearch')} {found.get('number')}"

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> int:
        """Sends the documents in requests of bounded size."""
        count, size = 0, 0
        waiting: list[tuple[SinkRecord, list[str]]] = []
        for record in records:
            try:
                lines = self._lines(record)
            except DataError as error:
                refuse(record, error)
                continue
            if not lines:
                continue
            waiting.append((record, lines))
            size += sum(map(len, lines))
            count += 1
            if len(waiting) >= self._values["batch.size"] or size >= self._values["bulk.size.bytes"]:
                self._send(waiting, refuse)
                waiting, size = [], 0
        if waiting:
            self._send(waiting, refuse)
        return count

    def _lines(self, record: SinkRecord) -> list[str]:
        """The lines of a record in a bulk request; none if it is passed over."""
        place = f"{record.original_topic}-{record.original_partition}@{record.offset}"
        index = self._values["index.name"] or record.topic.lower()
        if wrong := _wrong_index(index):
            raise DataError(f"record {place}: {wrong}")
        about: JsonObject = {"_index": index, "_id": self._id(record, place)}
        versioned: JsonObject = {**about, "version": record.offset, "version_type": "external_gte"}
        if record.value is None:
            nulls = self._values["behavior.on.null.values"]
            if nulls == "FAIL":
                raise DataError(
                    f"record {place} has no value; behavior.on.null.values=DELETE removes its document"
                )
            return [] if nulls == "IGNORE" else [json.dumps({"delete": versioned})]
        if not isinstance(record.value, Struct | dict):
            raise DataError(
                f"record {place} is no object with fields, which a document is: see value.converter"
            )
        document = (_JSON.from_connect("", record.value_schema, record.value) or b"null").decode()
        if self._values["write.method"] == "UPSERT":
            return [
                json.dumps({"update": {**about, "retry_on_conflict": 5}}),
                f'{{"doc":{document},"doc_as_upsert":true}}',
            ]
        return [json.dumps({"index": versioned}), document]

    def _id(self, record: SinkRecord, place: str) -> str:
        if self._values["key.ignore"]:
            return f"{record.original_topic}+{record.original_partition}+{record.offset}"
        key = record.key
        if key is None or isinstance(key, Struct | dict | list | bytes):
            raise DataError(f"record {place} has no plain key that names its document: set key.ignore=true")
        text = ("true" if key else "false") if isinstance(key, bool) else str(key)
        if len(text.encode()) > _LONGEST_ID:
            raise DataError(
                f"record {place} has a key of more than {_LONGEST_ID} bytes, which no document can have"
            )
        return text

    def _send(self, waiting: list[tuple[SinkRecord, list[str]]], refuse: Refuse) -> None:
        from opensearchpy.exceptions import OpenSearchException

        body = "\n".join(line for _, lines in waiting for line in lines) + "\n"
        try:
            answer = self._connected().bulk(body=body)
        except (OpenSearchException, OSError) as error:
            raise self._failed(error) from error
        for (record, _), item in zip(waiting, answer["items"], strict=True):
            ((verb, result),) = item.items()
            status = result["status"]
            if status in _IN_ORDER or (verb == "delete" and status == 404):
                continue
            reason = _reason(result)
            if status in _PASSING:
                raise Retriable(f"{self.where} cannot take all documents now ({status}): {reason}")
            if self._values["behavior.on.malformed.documents"] == "FAIL" or status not in (400, 404):
                refuse(record, DataError(f"{self.where} refuses the document ({status}): {reason}"))

    def stop(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _reason(result: JsonObject) -> str:
    error = result.get("error")
    if not isinstance(error, dict):
        return str(error)[:_SHOWN]
    cause = error.get("caused_by")
    inner = f"; {cause.get('reason')}" if isinstance(cause, dict) else ""
    return f"{error.get('type')}: {error.get('reason')}{inner}"[:_SHOWN]


def _wrong_index(name: str) -> str | None:
    """Why a name cannot be that of an index."""
    if (
        name != name.lower()
        or name.startswith(("-", "_", "+"))
        or name in (".", "..")
        or _BAD_INDEX.search(name)
    ):
        return (
            f'{name} cannot be the name of an index: small letters, no spaces, none of \\ / * ? " < > | , # :'
        )
    return f"{name[:40]}... is longer than 255 bytes" if len(name.encode()) > 255 else None


def _tls(values: ConfigValues) -> object:
    from datetime import UTC, datetime

    from ottla.credentials.contexts import TlsConfig, client_context
    from ottla.credentials.errors import CredentialsError

    keys = {name[len(_TLS) :]: str(one) for name, one in values.items() if name.startswith(_TLS) and one}
    if not keys:
        import ssl

        return ssl.create_default_context()
    try:
        return client_context(TlsConfig.of(keys), datetime.now(UTC))
    except CredentialsError as error:
        raise TaskFailed(f"{_TLS}{error}") from None
