"""HTTP source: asks an address again and again, and writes each new item of its JSON answers once.

The offset is a set of fields of the last item, which the next request carries (`${offset.id}`). A server may give that
item again: what comes up to it and with it is passed over. An answer is kept until its records are committed.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import httpx

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import STRING
from ottla.connect.failures import ConnectError, Retriable, TaskFailed
from ottla.connect.spi import Offsets, ReadLimit, SourceConnector, SourceReader, partition_key
from ottla.json_types import Json

_TEMPLATE: Final = re.compile(r"\$\{offset\.([A-Za-z0-9_]+)\}")
_PASSING: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_MOST_BYTES: Final = 64 << 20
_SHOWN: Final = 200


class HttpSource(SourceConnector):
    """Castorm's `HttpSourceConnector`: its keys of request, response, offset and timer."""

    java_classes = ("com.github.castorm.kafka.connect.http.HttpSourceConnector",)
    version = "0.8.11"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """What is asked, and what of the answer is a record."""
        pointers = "Fields of an item that are its offset: id=/id, at=/updated"
        return ConfigDef(
            [
                ConfigKey("kafka.topic", importance="HIGH", documentation="The topic of the records"),
                ConfigKey(
                    "http.request.url", importance="HIGH", documentation="The address; may hold ${offset.id}"
                ),
                ConfigKey("http.request.method", default="GET", valid="[GET, POST]"),
                ConfigKey("http.request.headers", "PASSWORD", "", documentation="name: value, name: value"),
                ConfigKey("http.request.params", default="", documentation="since=${offset.id}&limit=100"),
                ConfigKey("http.request.body", default="", documentation="The body of a POST"),
                ConfigKey("http.auth.type", default="None", valid="[None, Basic]"),
                ConfigKey("http.auth.user", default="", documentation="The user of Basic"),
                ConfigKey("http.auth.password", "PASSWORD", "", documentation="The password of Basic"),
                ConfigKey("http.client.connection.timeout.millis", "LONG", 2000, "LOW", "", valid="[1,...]"),
                ConfigKey("http.client.read.timeout.millis", "LONG", 10_000, "LOW", "", valid="[1,...]"),
                ConfigKey(
                    "http.response.list.pointer", default="/", documentation="Where the list of items is"
                ),
                ConfigKey("http.response.record.offset.pointer", importance="HIGH", documentation=pointers),
                ConfigKey(
                    "http.response.record.pointer", default="/", documentation="What of an item is the value"
                ),
                ConfigKey(
                    "http.response.record.key.pointer", default="", documentation="What of an item is the key"
                ),
                ConfigKey("http.offset.initial", default="", documentation="The offset to begin with: id=0"),
                ConfigKey(
                    "http.timer.interval.millis",
                    "LONG",
                    60_000,
                    documentation="Between requests",
                    valid="[1,...]",
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """The address, the pointers, and that templates name fields of the offset."""
        found: dict[str, list[str]] = {}
        url = config.get("http.request.url", "")
        if url and not url.startswith(("http://", "https://", "${")):
            found["http.request.url"] = ["write an address that begins with http:// or https://"]
        try:
            fields = _pairs(config.get("http.response.record.offset.pointer", ""))
            initial = _pairs(config.get("http.offset.initial", ""))
        except ConnectError as error:
            return {**found, "http.response.record.offset.pointer": [str(error)]}
        for key in ("http.request.url", "http.request.params", "http.request.headers", "http.request.body"):
            for name in _TEMPLATE.findall(config.get(key, "")):
                if name not in fields:
                    found[key] = [f"${{offset.{name}}} is no field of http.response.record.offset.pointer"]
                elif name not in initial:
                    found[key] = [
                        f"${{offset.{name}}} has no value for the first request: see http.offset.initial"
                    ]
        if config.get("http.auth.type") == "Basic" and not config.get("http.auth.user"):
            found["http.auth.user"] = ["http.auth.type=Basic needs a user"]
        return found

    def reader(self) -> SourceReader:
        """A reader with one client."""
        return HttpReader(self.values)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """The offset of the only partition."""
        if partition:
            raise ConnectError("the partition of an HTTP source is an empty object")
        missing = set(_pairs(self.values["http.response.record.offset.pointer"])) - set(offset or ())
        if offset is not None and missing:
            raise ConnectError(f"the offset needs the field {min(missing)}")


class HttpReader(SourceReader):
    """Asks, and keeps the answer until it is committed."""

    _KEY: Final = partition_key({})

    def __init__(self, values: ConfigValues) -> None:
        self._values = dict(values)
        self._fields = _pairs(values["http.response.record.offset.pointer"])
        self._client: httpx.Client | None = None
        self._kept: dict[str, list[Json]] = {}
        """The items of a plan by its end, as text."""
        self._caught_up = False

    def initial_offsets(self) -> Offsets:
        """What `http.offset.initial` says; a first request without templates needs nothing."""
        given = _pairs(self._values["http.offset.initial"])
        return {self._KEY: dict(given)} if given else {}

    def latest_offsets(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Asks for what follows `start`."""
        offset = start.get(self._KEY, {})
        found = self._new_items(self._ask(offset), offset)[: limit.records]
        self._caught_up = not found
        if not found:
            return start
        end = {name: self._field(found[-1], name, pointer) for name, pointer in self._fields.items()}
        self._kept = {json.dumps(end, sort_keys=True): found}
        return {self._KEY: end}

    def _field(self, item: Json, name: str, pointer: str) -> Json:
        value = at_pointer(item, pointer)
        if value is None or isinstance(value, dict | list):
            raise TaskFailed(f"{self._shown()}: an item has no plain {pointer}, which is its offset {name}")
        return value

    def _new_items(self, items: list[Json], offset: Mapping[str, Json]) -> list[Json]:
        """Without those that come up to the item of the offset, if it is among them."""
        place = {name: str(offset.get(name)) for name in self._fields}
        last = -1
        for number, item in enumerate(items):
            if {name: str(at_pointer(item, pointer)) for name, pointer in self._fields.items()} == place:
                last = number
        return items[last + 1 :]

    def splits(self, start: Offsets, end: Offsets, max_splits: int) -> Sequence[str]:
        """One, which names the answer."""
        return [json.dumps(end[self._KEY], sort_keys=True)]

    def read(self, split: str) -> Iterator[SourceRecord]:
        """The records of an answer that was kept."""
        key_pointer = self._values["http.response.record.key.pointer"]
        for item in self._kept[split]:
            key = at_pointer(item, key_pointer) if key_pointer else None
            yield SourceRecord(
                self._values["kafka.topic"],
                _text(at_pointer(item, self._values["http.response.record.pointer"])),
                STRING,
                None if key is None else _text(key),
                None if key is None else STRING,
            )

    def commit(self, end: Offsets) -> None:
        """The answer is written."""
        self._kept = {}

    def wait(self, timeout_s: float, stopping: Callable[[float], bool]) -> None:
        """Until the next request."""
        stopping(self._values["http.timer.interval.millis"] / 1000)

    def describe(self) -> list[str]:
        """Asks once."""
        began = time.monotonic()
        items = self._ask(self.initial_offsets().get(self._KEY, {}))
        took_ms = (time.monotonic() - began) * 1000
        return [f"{self._shown()} answers with {len(items)} items in {took_ms:.0f} ms"]

    def stop(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- the request

    def _shown(self) -> str:
        found = urlsplit(self._values["http.request.url"])
        return f"{found.scheme}://{found.hostname}{f':{found.port}' if found.port else ''}{found.path}"

    def _filled(self, key: str, offset: Mapping[str, Json]) -> str:
        return _TEMPLATE.sub(lambda found: str(offset.get(found[1], "")), str(self._values[key]))

    def _ask(self, offset: Mapping[str, Json]) -> list[Json]:
        values = self._values
        if self._client is None:
            read_s = values["http.client.read.timeout.millis"] / 1000
            connect_s = values["http.client.connection.timeout.millis"] / 1000
            self._client = httpx.Client(
                timeout=httpx.Timeout(read_s, connect=connect_s), follow_redirects=True
            )
        headers = _headers(self._filled("http.request.headers", offset))
        if values["http.auth.type"] == "Basic":
            login = f"{values['http.auth.user']}:{values['http.auth.password']}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        url = httpx.URL(self._filled("http.request.url", offset))
        params: dict[str, list[str]] = {}
        for name, value in parse_qsl(self._filled("http.request.params", offset), keep_blank_values=True):
            params.setdefault(name, []).append(value)
        try:
            with self._client.stream(
                values["http.request.method"],
                url.copy_merge_params(params),
                headers=headers,
                content=self._filled("http.request.body", offset) or None,
            ) as answer:
                data = self._body(answer)
        except httpx.HTTPError as error:
            raise Retriable(f"{self._shown()} cannot be reached: {error}") from error
        try:
            found = at_pointer(json.loads(data), values["http.response.list.pointer"])
        except (ValueError, RecursionError) as error:
            raise TaskFailed(f"{self._shown()} answers with something that is not JSON: {error}") from None
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def _body(self, answer: httpx.Response) -> bytes:
        data = bytearray()
        for part in answer.iter_bytes():
            data += part
            if len(data) > _MOST_BYTES:
                raise TaskFailed(
                    f"{self._shown()} answers with more than {_MOST_BYTES >> 20} MiB: ask for less"
                )
        if answer.status_code in _PASSING:
            raise Retriable(f"{self._shown()} answers {answer.status_code}")
        if answer.status_code >= 400:
            shown = bytes(data[:_SHOWN]).decode("utf-8", "replace")
            raise TaskFailed(f"{self._shown()} answers {answer.status_code}: {shown}")
        return bytes(data) or b"null"


def at_pointer(item: Json, pointer: str) -> Json:
    """What a JSON pointer names; `/` is the whole, and None if there is nothing.

    >>> at_pointer({"a": [{"b": 1}]}, "/a/0/b")
    1
    """
    found = item
    for step in pointer.split("/"):
        if not step:
            continue
        word = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(word)
        elif isinstance(found, list) and word.isdigit() and int(word) < len(found):
            found = found[int(word)]
        else:
            return None
    return found


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pairs(text: str) -> dict[str, str]:
    """`id=/id, at=/updated` as a map."""
    found = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = one.partition("=")
        if not sign or not re.fullmatch(r"\w+", name.strip()):
            raise ConnectError(f"{one} is not written as name=value")
        found[name.strip()] = value.strip()
    return found


def _headers(text: str) -> dict[str, str]:
    found = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = one.partition(":")
        found[name.strip()] = value.strip()
    return found
