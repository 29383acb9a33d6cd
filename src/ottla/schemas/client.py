"""A client of a schema registry: one connection per thread, several addresses, and everything immutable cached."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ottla.json_types import Json, JsonObject, JsonTypeError, as_int, as_list, as_object, as_text
from ottla.schemas.errors import (
    IncompatibleSchema,
    RegistryRefused,
    RegistryUnavailable,
    SchemaError,
    UnknownSchema,
)
from ottla.schemas.rules import active_rules

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ottla.schemas.avro import AvroSerde
    from ottla.schemas.json import JsonSchemaSerde
    from ottla.schemas.proto import ProtobufSerde
    from ottla.schemas.serde import AvroOptions, JsonOptions, Options, Schema

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_ANSWER_BYTES: Final = 64 << 20
_MAX_PASSWORD_CHARS: Final = 4_096
_UNKNOWN_FOR_S: Final = 30.0
"""An id that the registry does not know is asked for again after this time, not with every record."""
_NO_LEADER: Final = (50003, 50004)
FILE_TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""The formats of schema files by the ends of their names."""


def schema_of_file(file: Path, kind: str | None = None) -> tuple[str, str]:
    """The text of a schema file and its format, which its name says if `kind` does not."""
    known = kind or FILE_TYPES.get(file.suffix)
    if known is None:
        raise SchemaError(f"the schema file {file} ends with none of {', '.join(FILE_TYPES)}")
    try:
        return file.read_text(encoding="utf-8"), known
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SchemaError(f"the schema file {file} cannot be read: {reason}") from None


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry holds it."""

    id: int
    text: str
    type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    guid: str = ""
    subject: str = ""
    version: int = 0
    rules: tuple[tuple[str, str], ...] = ()
    """The rules that serializers have to run, each with its mode."""


@dataclass(slots=True)
class Registry:
    """A schema registry: Ottla's, Confluent's, or any with Confluent's interface. All threads may share one.

    A user and a password inside an address (`http://ann:secret@host:8081`) are taken out of it, and never shown.
    `password_env` names a variable of the environment that holds the password, `password_file` a file. Programs whose
    serializers travel to other processes, as with Spark, use one of them: a password itself does not travel.

    >>> registry = Registry("http://localhost:8081", user="ann", password="secret")
    >>> registry
    Registry(urls='http://localhost:8081', user='ann')
    """

    urls: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str | None = field(default=None, repr=False)
    timeout_s: float = field(default=10.0, repr=False)
    password_env: str = field(default="", repr=False)
    password_file: str = field(default="", repr=False)
    _local: threading.local = field(init=False, repr=False, compare=False)
    _by_id: dict[int, RegisteredSchema] = field(init=False, repr=False, compare=False, default_factory=dict)
    _by_guid: dict[str, RegisteredSchema] = field(init=False, repr=False, compare=False, default_factory=dict)
    _ids: dict[tuple[object, ...], RegisteredSchema] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _connections: list[http.client.HTTPConnection] = field(
        init=False, repr=False, compare=False, default_factory=list
    )
    _unknown: dict[int | str, float] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._local = threading.local()
        urls = []
        for url in self.urls.split(","):
            parts = _address(url.strip())
            if parts.username and not self.user:
                self.user, self.password = unquote(parts.username), unquote(parts.password or "")
            urls.append(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        self.urls = ",".join(urls)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Registry | None:
        """The registry that a client's properties name by Confluent's keys; None if they name none.

        >>> Registry.of({"schema.registry.url": "http://localhost:8081", "basic.auth.user.info": "ann:secret"})
        Registry(urls='http://localhost:8081', user='ann')
        """
        urls = properties.get("schema.registry.url", "").strip()
        if not urls:
            return None
        login = properties.get("schema.registry.basic.auth.user.info") or properties.get(
            "basic.auth.user.info", ""
        )
        user, _, password = login.partition(":")
        return cls(urls, user, password, properties.get("schema.registry.ssl.ca.location"))

    def __reduce__(self) -> tuple[object, ...]:
        if self.password:
            # What is pickled stands in tasks, plans and checkpoints, which others can read.
            raise SchemaError(
                f"the password of {self.user} for the registry at {self.urls} must not travel to another process: give"
                " its place instead, as password_env='NAME' or password_file='PATH'"
            )
        places = (self.password_env, self.password_file)
        return Registry, (self.urls, self.user, "", self.ca_file, self.timeout_s, *places)

    def _password(self) -> str:
        """The password, read again with each request from where it is: it may have been renewed."""
        if self.password_env:
            found = os.environ.get(self.password_env)
            if found is None:
                raise SchemaError(
                    f"the environment has no {self.password_env}, which holds the password of {self.user} for the"
                    f" registry at {self.urls}; Spark's executors get it by spark.executorEnv.{self.password_env}"
                )
            return found
        if not self.password_file:
            return self.password
        try:
            with open(self.password_file, encoding="utf-8") as file:
                return file.read(_MAX_PASSWORD_CHARS).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(
                f"the file {self.password_file}, which holds the password of {self.user} for the registry, cannot be"
                f" read: {_reason(error)}"
            ) from None

    # -- serializers

    def avro(
        self, subject: str | None = None, schema: Schema = None, **options: Unpack[AvroOptions]
    ) -> AvroSerde:
        """A serializer and deserializer of Avro, for producers, consumers and Streams; see `AvroSerde`.

        >>> registry = Registry("http://localhost:8081")
        >>> registry.avro("orders-value").subject
        'orders-value'
        """
        from ottla.schemas.avro import AvroSerde

        return AvroSerde(self, subject, schema, **options)

    def json(
        self, subject: str | None = None, schema: Schema = None, **options: Unpack[JsonOptions]
    ) -> JsonSchemaSerde:
        """The same for JSON with a JSON Schema; see `JsonSchemaSerde`.

        >>> Registry("http://localhost:8081").json("carts-value", {"type": "object"}).subject
        'carts-value'
        """
        from ottla.schemas.json import JsonSchemaSerde

        return JsonSchemaSerde(self, subject, schema, **options)

    def protobuf(
        self, subject: str | None = None, message: type[Message] | None = None, **options: Unpack[Options]
    ) -> ProtobufSerde:
        """The same for messages of a generated Protobuf class; see `ProtobufSerde`.

        >>> from google.protobuf.duration_pb2 import Duration
        >>> Registry("http://localhost:8081").protobuf("waits-value", Duration).subject
        'waits-value'
        """
        from ottla.schemas.proto import ProtobufSerde

        return ProtobufSerde(self, subject, message, **options)

    # -- schemas

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema:
        """The schema of an id. It is asked for once: an id never changes its meaning."""
        found = self._by_id.get(schema_id)
        if found is None:
            query = f"?subject={quote(subject, safe='')}" if subject.startswith(":.") else ""
            answer = self._once(
                schema_id, f"/schemas/ids/{schema_id}{query}", f"the schema id {schema_id}", schema_id
            )
            found = self._by_id[schema_id] = _registered({**answer, "id": schema_id})
        return found

    def by_guid(self, guid: str) -> RegisteredSchema:
        """The schema of a guid, which records with ids in headers name."""
        found = self._by_guid.get(guid)
        if found is None:
            answer = self._once(guid, f"/schemas/guids/{guid}", f"the schema guid {guid}", None)
            found = self._by_guid[guid] = _registered(answer)
        return found

    def _once(self, key: int | str, path: str, about: str, schema_id: int | None) -> JsonObject:
        until = self._unknown.get(key, 0.0)
        if time.monotonic() < until:
            raise UnknownSchema(_unknown_text(self.urls, about), schema_id)
        try:
            return self.ask_object("GET", path, about=about)
        except RegistryRefused as error:
            if error.status != 404:
                raise
            if len(self._unknown) > 10_000:
                self._unknown.clear()
            self._unknown[key] = time.monotonic() + _UNKNOWN_FOR_S
            raise UnknownSchema(_unknown_text(self.urls, about), schema_id) from None
        except RegistryUnavailable as error:
            error.schema_id = schema_id
            raise

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject."""
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str) -> RegisteredSchema:
        """A version of a subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        try:
            answer = self.ask_object("GET", path, about=f"the subject {subject}")
        except RegistryRefused as error:
            if error.status == 404:
                text = f"the registry at {self.urls} has no version {version} of the subject {subject}; register one"
                raise UnknownSchema(text) from None
            raise
        return _registered(answer)

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: tuple[Reference, ...] = (),
        *,
        normalize: bool = False,
    ) -> RegisteredSchema:
        """Register a schema; the one that is there already if it is the same. It is asked for once."""
        return self._submit("/versions", subject, text, kind, references, normalize)

    def lookup(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: tuple[Reference, ...] = (),
        *,
        normalize: bool = False,
    ) -> RegisteredSchema:
        """The registered schema that equals a text; UnknownSchema if there is none."""
        return self._submit("", subject, text, kind, references, normalize)

    def _submit(
        self,
        where: str,
        subject: str,
        text: str,
        kind: str,
        references: tuple[Reference, ...],
        normalize: bool,
    ) -> RegisteredSchema:
        key = (where, subject, text, kind, references, normalize)
        found = self._ids.get(key)
        if found is not None:
            return found
        path = f"/subjects/{quote(subject, safe='')}{where}" + ("?normalize=true" if normalize else "")
        body: JsonObject = {"schema": text, "schemaType": kind}
        if references:
            body["references"] = [asdict(one) for one in references]
        try:
            answer = self.ask_object("POST", path, body, about=f"the subject {subject}")
        except RegistryRefused as error:
            if error.status == 404:
                text = f"the registry at {self.urls} does not have this schema under {subject}; register it first"
                raise UnknownSchema(text) from None
            raise
        whole: JsonObject = {"schema": text, **answer, "subject": subject, "schemaType": kind}
        found = _registered(whole)
        self._ids[key] = found = replace(found, references=references)
        return found

    def close(self) -> None:
        """Close the connections of all threads. The next request opens a new one.

        >>> Registry("http://localhost:8081").close()
        """
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    # -- HTTP

    def ask_object(self, method: str, path: str, body: Json = None, *, about: str = "") -> JsonObject:
        """The answer to a request that an object answers."""
        return as_object(
            self.ask(method, path, body, about=about), f"the registry's answer about {about or path}"
        )

    def ask(self, method: str, path: str, body: Json = None, *, about: str = "") -> Json:
        """The answer to a request, of the first registry that answers."""
        failures: list[str] = []
        for url in self.urls.split(","):
            url = url.strip().rstrip("/")
            try:
                status, answer = self._ask(url, method, path, body)
            except SchemaError:
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"{url}: {_reason(error)}")
                continue
            if status < 300:
                return answer
            code = answer.get("error_code", status) if isinstance(answer, dict) else status
            message = answer.get("message", "") if isinstance(answer, dict) else ""
            if code in _NO_LEADER or status in (502, 503, 504):
                failures.append(f"{url}: {message or status}")
                continue
            self._refuse(url, status, code if isinstance(code, int) else status, str(message), about)
        raise RegistryUnavailable(
            f"no schema registry answers about {about or path} ({'; '.join(failures)}); check its address and that"
            " it runs"
        )

    def _refuse(self, url: str, status: int, code: int, message: str, about: str) -> None:
        if status == 409:
            raise IncompatibleSchema(f"the registry refuses the schema of {about} as incompatible: {message}")
        if status in (401, 403):
            raise RegistryRefused(
                f"the registry at {url} refuses the user about {about}: {message}", status, code
            )
        raise RegistryRefused(f"the registry at {url} answers {code} about {about}: {message}", status, code)

    def _ask(self, url: str, method: str, path: str, body: Json) -> tuple[int, Json]:
        open_: dict[str, http.client.HTTPConnection] = self._local.__dict__.setdefault("open", {})
        data = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            connection = open_.get(url)
            fresh = connection is None
            if connection is None:
                connection = open_[url] = self._connect(url)
                self._connections.append(connection)
            try:
                connection.request(method, urlsplit(url).path.rstrip("/") + path, data, self._headers())
                response = connection.getresponse()
                raw = response.read(_MAX_ANSWER_BYTES)
                if response.length:
                    raise http.client.IncompleteRead(raw, response.length)
                return response.status, json.loads(raw or b"null")
            except (OSError, http.client.HTTPException):
                connection.close()
                open_.pop(url, None)
                if connection in self._connections:
                    self._connections.remove(connection)
                # A registry closes idle connections: ask once more on a new one.
                if fresh or attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _connect(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            return http.client.HTTPSConnection(
                host, parts.port or 443, timeout=self.timeout_s, context=context
            )
        return http.client.HTTPConnection(host, parts.port or 80, timeout=self.timeout_s)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": _MEDIA_TYPE, "Accept": _MEDIA_TYPE}
        if self.user:
            token = base64.b64encode(f"{self.user}:{self._password()}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        return headers


def _address(url: str) -> SplitResult:
    """The parts of a registry's address. An error does not repeat a password that stands in it."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        shown = url.rpartition("@")[2]
        raise ValueError(f"{shown!r} is not the address of a registry: expected http://host:port")
    return parts


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _unknown_text(urls: str, about: str) -> str:
    return (
        f"the registry at {urls} does not know {about}: the record was written with another registry, or its schema"
        " was deleted"
    )


def _registered(answer: JsonObject) -> RegisteredSchema:
    try:
        return RegisteredSchema(
            as_int(answer.get("id", -1), "id"),
            as_text(answer.get("schema"), "schema"),
            as_text(answer.get("schemaType") or "AVRO", "schemaType"),
            references_of(answer),
            as_text(answer.get("guid") or "", "guid"),
            as_text(answer.get("subject") or "", "subject"),
            as_int(answer.get("version") or 0, "version"),
            active_rules(as_object(answer.get("ruleSet") or {}, "ruleSet")),
        )
    except JsonTypeError as error:
        raise SchemaError(f"the registry's answer is not one of Confluent's interface: {error}") from None


def references_of(answer: JsonObject) -> tuple[Reference, ...]:
    """The references of a schema in a registry's answer."""
    found = []
    for each in as_list(answer.get("references") or [], "references"):
        one = as_object(each, "a reference")
        name, subject = as_text(one.get("name"), "name"), as_text(one.get("subject"), "subject")
        found.append(Reference(name, subject, as_int(one.get("version"), "version")))
    return tuple(found)
