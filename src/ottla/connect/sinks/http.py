"""HTTP sink: records as requests, one by one or in batches.

A server cannot take part in a commit: after a crash the requests of the last cycle are sent again, with the same bodies
and the same `Idempotency-Key`, by which a server can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import httpx

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data.record import SinkRecord
from ottla.connect.failures import DataError, Retriable, TaskFailed
from ottla.connect.spi import Finding, Refuse, SinkConnector, SinkCycle, SinkWriter

_JSON: Final = JsonConverter({"schemas.enable": "false"})
_PASSING: Final = frozenset((408, 425, 429))
_LOGINS: Final = frozenset((401, 403, 404, 405))
_SHOWN: Final = 200


class HttpSink(SinkConnector):
    """Aiven's `HttpSinkConnector`, and the address, method and headers of Confluent's."""

    java_classes = (
        "io.aiven.kafka.connect.http.HttpSinkConnector",
        "io.confluent.connect.http.HttpSinkConnector",
    )
    version = "0.8.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Where requests go, and what they carry."""
        return ConfigDef(
            [
                ConfigKey("http.url", default="", importance="HIGH", documentation="Where requests go"),
                ConfigKey("http.api.url", default="", importance="HIGH", documentation="The same"),
                ConfigKey("request.method", default="POST", valid="[POST, PUT, PATCH]"),
                ConfigKey(
                    "http.authorization.type", default="none", valid="[none, static]", importance="HIGH"
                ),
                ConfigKey(
                    "http.headers.authorization", "PASSWORD", "", documentation="The header Authorization"
                ),
                ConfigKey("http.headers.content.type", default="", documentation="The header Content-Type"),
                ConfigKey("headers", "PASSWORD", "", documentation="More headers: name:value|name:value"),
                ConfigKey("http.timeout", "INT", 30, "LOW", "Seconds until an answer", valid="[1,...]"),
                ConfigKey("batching.enabled", "BOOLEAN", False, documentation="Several records in a request"),
                ConfigKey(
                    "batch.max.size", "INT", 500, documentation="Records of a request", valid="[1,...]"
                ),
                ConfigKey("batch.prefix", default="", documentation="In front of a batch"),
                ConfigKey("batch.suffix", default="", documentation="Behind a batch"),
                ConfigKey("batch.separator", default="\n", documentation="Between records"),
                ConfigKey(
                    "max.retries", "INT", 1, "LOW", "Has no effect: requests are tried until they pass"
                ),
                ConfigKey(
                    "retry.backoff.ms", "INT", 3000, "LOW", "Has no effect: see ottla.restart.backoff.ms"
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """An address, and what a login needs."""
        found: dict[str, list[str]] = {}
        url = config.get("http.url") or config.get("http.api.url") or ""
        if "${" not in url and not url.startswith(("http://", "https://")):
            found["http.url"] = ["write an address that begins with http:// or https://"]
        if config.get("http.authorization.type") == "static" and not config.get("http.headers.authorization"):
            found["http.headers.authorization"] = ["http.authorization.type=static needs this key"]
        for one in filter(None, config.get("headers", "").split("|")):
            if ":" not in one:
                found["headers"] = ["headers are written as name:value|name:value"]
        return found

    def check(self) -> list[Finding]:
        """Whether the server answers at all."""
        writer = HttpWriter("check", self.values)
        try:
            with writer.client() as client:
                client.request("OPTIONS", writer.url)
        except httpx.HTTPError as error:
            return [Finding(False, f"{writer.shown} does not answer: {error}")]
        return [Finding(True, f"{writer.shown} answers")]

    def writer(self) -> SinkWriter:
        """A writer with one client."""
        return HttpWriter(self.config["name"], self.values)


class HttpWriter(SinkWriter):
    """Sends the records of a cycle in their order."""

    def __init__(self, connector: str, values: ConfigValues) -> None:
        self._connector = connector
        self._method = str(values["request.method"])
        self.url = str(values["http.url"] or values["http.api.url"])
        address = httpx.URL(self.url)
        self.shown = f"{address.scheme}://{address.netloc.decode().rpartition('@')[2]}{address.path}"
        self._timeout_s = float(values["http.timeout"])
        self._together = int(values["batch.max.size"]) if values["batching.enabled"] else 1
        self._around = str(values["batch.prefix"]), str(values["batch.suffix"])
        self._separator = str(values["batch.separator"])
        self._headers = _headers(values)
        self._client: httpx.Client | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_client": None}

    def client(self) -> httpx.Client:
        """A client with the connector's headers."""
        return httpx.Client(timeout=self._timeout_s, headers=self._headers)

    def write(self, cycle: SinkCycle, records: Iterator[SinkRecord], refuse: Refuse) -> None:
        """Sends all records; Retriable if the server cannot take them now."""
        waiting: list[tuple[SinkRecord, bytes]] = []
        for record in records:
            if record.value is None:
                refuse(record, DataError("the record has no value that could be sent"))
                continue
            waiting.append((record, _body(record)))
            if len(waiting) >= self._together:
                self._send(waiting, refuse)
                waiting = []
        if waiting:
            self._send(waiting, refuse)

    def _send(self, found: list[tuple[SinkRecord, bytes]], refuse: Refuse) -> None:
        """One request. A batch that the server refuses is halved, down to the record that it does not take."""
        problem = self._request(found)
        if problem is None:
            return
        if len(found) == 1:
            refuse(found[0][0], problem)
            return
        half = len(found) // 2
        self._send(found[:half], refuse)
        self._send(found[half:], refuse)

    def _request(self, found: list[tuple[SinkRecord, bytes]]) -> DataError | None:
        body = self._separator.encode().join(one for _, one in found)
        if self._together > 1:
            prefix, suffix = self._around
            body = prefix.encode() + body + suffix.encode()
        first = found[0][0]
        place = f"{first.original_topic}-{first.original_partition}-{first.offset}-{len(found)}"
        if self._client is None:
            self._client = self.client()
        try:
            answer = self._client.request(
                self._method,
                self.url,
                content=body,
                headers={"Idempotency-Key": f"{self._connector}-{place}"},
            )
        except httpx.TransportError as error:
            raise Retriable(
                f"{self.shown} cannot be reached: {type(error).__name__} {error}".strip()
            ) from error
        if answer.is_success:
            return None
        words = f"{self.shown} answers {answer.status_code}: {' '.join(answer.text[:_SHOWN].split())}"
        if answer.status_code >= 500 or answer.status_code in _PASSING:
            raise Retriable(words)
        if answer.status_code in _LOGINS or answer.is_redirect:
            raise TaskFailed(f"{words}. Look at the address and the login")
        return DataError(words)

    def stop(self) -> None:
        """Closes connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _headers(values: ConfigValues) -> dict[str, str]:
    found = {}
    for one in filter(None, str(values["headers"] or "").split("|")):
        name, _, value = one.partition(":")
        found[name.strip()] = value.strip()
    if values["http.authorization.type"] == "static":
        found["Authorization"] = str(values["http.headers.authorization"])
    if values["http.headers.content.type"]:
        found["Content-Type"] = str(values["http.headers.content.type"])
    return found


def _body(record: SinkRecord) -> bytes:
    """Text and bytes as they are, all else as JSON."""
    if isinstance(record.value, str):
        return record.value.encode("utf-8", "replace")
    if isinstance(record.value, bytes):
        return record.value
    return _JSON.from_connect(record.topic, record.value_schema, record.value) or b""
