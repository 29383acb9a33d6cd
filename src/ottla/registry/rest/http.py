"""Requests and answers of the registry, the media types, and the route table. Nothing here knows what a schema is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec

from ottla.json_types import Json, JsonObject
from ottla.registry.errors import RegistryError

MEDIA_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
_MAX_ACCEPTED: Final = 50
_CHARSETS: Final = ("utf-16", "utf-16le", "utf-16be", "utf-32", "iso-8859-1")
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Request:
    """One request: its decoded path, query and body, and who sends it."""

    method: str
    segments: tuple[str, ...]
    target: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""
    context: str = "."
    user: str | None = None
    pairs: list[tuple[str, str]] = field(default_factory=list)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false, in any capitals."""
        return self.query.get(name, "").lower() in ("true", "1")

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            return max(-1, min(int(text[:20]), 2**31 - 1))
        except ValueError:
            raise RegistryError(400, 400, f"The parameter {name} must be a number.") from None

    def document(self) -> JsonObject:
        """The body as a JSON object."""
        try:
            found = msgspec.json.decode(self.body or b"{}")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise RegistryError(400, 400, f"The body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise RegistryError(400, 400, "The body must be a JSON object.")
        return found


@dataclass(slots=True)
class Answer:
    """A status and a document; `raw` is sent as it is."""

    document: Json = None
    status: int = 200
    raw: bytes | None = None
    media_type: str | None = None

    def body(self) -> bytes:
        return _encode(self.document) if self.raw is None else self.raw


Handler: TypeAlias = "Callable[[Request, tuple[str, ...]], Awaitable[Json | Answer]]"


class Routes:
    """Handlers by method and shape of the path; `{}` in a pattern stands for any segment."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[str, int], list[tuple[tuple[str, ...], Handler]]] = {}
        self._methods: dict[int, list[tuple[tuple[str, ...], str]]] = {}

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        shape = tuple(pattern.strip("/").split("/")) if pattern.strip("/") else ()
        self._by_shape.setdefault((method, len(shape)), []).append((shape, handler))
        self._methods.setdefault(len(shape), []).append((shape, method))

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Handler, tuple[str, ...]]:
        for shape, handler in self._by_shape.get((method, len(segments)), ()):
            if _fits(shape, segments):
                return handler, tuple(
                    segment for word, segment in zip(shape, segments, strict=True) if word == "{}"
                )
        if any(_fits(shape, segments) for shape, _ in self._methods.get(len(segments), ())):
            raise RegistryError(405, 405, "HTTP 405 Method Not Allowed")
        raise RegistryError(404, 404, "HTTP 404 Not Found")

    def patterns(self) -> list[tuple[str, str]]:
        """Every method and pattern, for tests that go through all of them."""
        return [
            (method, "/" + "/".join(shape))
            for (method, _), all_ in self._by_shape.items()
            for shape, _ in all_
        ]


def _fits(shape: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    return all(word in ("{}", segment) for word, segment in zip(shape, segments, strict=True))


def split_path(raw_path: bytes) -> tuple[str, ...]:
    """The decoded segments of a path. An encoded slash stays inside its segment."""
    text = raw_path.decode("ascii", "replace").strip("/")
    return tuple(unquote(one) for one in text.split("/")) if text else ()


def split_query(raw: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(raw.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise RegistryError(400, 400, "The query has too many parameters.") from None


def answer_type(accept: str) -> str:
    """The media type of the answer for an Accept header; 406 where none of ours will do."""
    if not accept or accept == "*/*":
        return MEDIA_TYPES[0]
    found: list[tuple[float, int, str]] = []
    for part in accept.split(",", _MAX_ACCEPTED)[:_MAX_ACCEPTED]:
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = _weight(parameters)
        if weight > 0:
            wanted = MEDIA_TYPES[0] if kind == "application/*" or kind.split("/")[0] == "*" else kind
            if wanted in MEDIA_TYPES:
                found.append((-weight, MEDIA_TYPES.index(wanted), wanted))
    if not found:
        raise RegistryError(406, 406, "HTTP 406 Not Acceptable")
    return min(found)[2]


def _weight(parameters: list[str]) -> float:
    """The weight of a part of an Accept header: 1 without a valid one."""
    for one in parameters:
        name, _, text = one.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(text)))
            except ValueError:
                return 1.0
    return 1.0


def charset(content_type: str) -> str:
    """The character set that a Content-Type header names; UTF-8 where it names none."""
    for part in content_type.lower().split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip() == "charset":
            return value.strip().strip('"')
    return "utf-8"


def in_utf8(body: bytes, content_type: str) -> bytes:
    """A body in UTF-8, whatever the character set of its header; 415 for one that is unknown here."""
    given = charset(content_type)
    if given in ("utf-8", "utf8", "us-ascii"):
        return body
    if given not in _CHARSETS:
        raise RegistryError(415, 415, f"The character set {given[:40]} is not known; use UTF-8.")
    try:
        return body.decode(given).encode()
    except UnicodeDecodeError:
        raise RegistryError(400, 400, f"The body is not a text in {given}.") from None


def check_content_type(given: str) -> None:
    """415 for a body in another media type than the registry's."""
    kind = given.split(";")[0].strip().lower()
    if kind and kind not in (*MEDIA_TYPES, "application/octet-stream"):
        raise RegistryError(415, 415, "HTTP 415 Unsupported Media Type")
