"""Message classes made from the schema table: one per message for all its versions, built at first use.

Construction is native (msgspec), since a fetch response builds dozens of them.

A trap for authors of handlers: a struct field that is left out holds one shared default for all messages. The default
is frozen, so that a change of it raises instead of changing other messages. Assign a new struct to the field instead:
`response.current_leader = FetchResponse.LeaderIdAndEpoch(...)`, never `response.current_leader.leader_id = ...`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

import msgspec

from ottla.wire import schema
from ottla.wire.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from ottla.wire.decoder import Decoder

_MODULE = "ottla.wire.messages"
_TAGS = "unknown_tagged_fields"
"""The last field of every struct: pairs of tag and bytes that the schema does not know."""

Codec = TypeVar("Codec")


class WireStruct(msgspec.Struct, eq=False):
    """The base class of messages and of the structs inside them."""

    SCHEMA: ClassVar[schema.Struct]
    DEFAULT: ClassVar[WireStruct | None]
    """The shared, frozen default. None for a struct with lists, since every message needs its own lists."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WireStruct) or self.SCHEMA is not other.SCHEMA:
            return NotImplemented
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        # Unknown tags are an empty tuple until there are some.
        return list(mine.pop(_TAGS)) == list(theirs.pop(_TAGS)) and mine == theirs

    __hash__ = None  # type: ignore[assignment]


class WireMessage(WireStruct, eq=False):
    """A message: a request, response, header, or the key or value of a record."""

    NAME: ClassVar[str]
    API_KEY: ClassVar[int | None]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FIRST_FLEXIBLE: ClassVar[int]
    MESSAGE: ClassVar[schema.Message]
    ENCODERS: ClassVar[Codecs[Callable[..., bytearray]]]
    DECODERS: ClassVar[Codecs[Decoder]]


Response_co = TypeVar("Response_co", bound="WireResponse", covariant=True)


class WireRequest(WireMessage, Generic[Response_co], eq=False):
    """A request. Its type parameter is its response, so that a client's `send` knows what it returns."""

    API_KEY: ClassVar[int]


class WireResponse(WireMessage, eq=False):
    """The response of an API."""

    API_KEY: ClassVar[int]


class Codecs(dict[int, Codec]):
    """The codecs of one message by version, compiled at first use."""

    __slots__ = ("_compile", "_message")

    def __init__(self, message: schema.Message, compiler: Callable[[schema.Message, int], Codec]) -> None:
        super().__init__()
        self._message = message
        self._compile = compiler

    def __missing__(self, version: int) -> Codec:
        versions = self._message.versions
        if version not in versions:
            known = f"{versions.first} to {versions.last}" if versions.first <= versions.last else "none"
            raise UnsupportedVersionError(
                f"{self._message.name} has no version {version}; its versions are {known}"
            )
        codec = self[version] = self._compile(self._message, version)
        return codec


_building = threading.RLock()


def message_class(name: str) -> type[WireMessage]:
    """The class of a message. KeyError if the table has none of that name."""
    # Two threads must not build two classes of one message.
    with _building:
        return _build(name)


@cache
def _build(name: str) -> type[WireMessage]:
    from ottla.wire.decoder import compile_decoder
    from ottla.wire.encoder import compile_encoder

    message = schema.message(name)
    low, high = message.versions
    namespace: dict[str, object] = {
        "NAME": name,
        "API_KEY": message.api_key,
        "MIN_VERSION": low if low <= high else 0,
        "MAX_VERSION": high,
        "FIRST_FLEXIBLE": message.flexible.first,
        "MESSAGE": message,
        "ENCODERS": Codecs(message, compile_encoder),
        "DECODERS": Codecs(message, compile_decoder),
    }
    namespace.update(struct_classes(name))
    base = {"request": WireRequest, "response": WireResponse}.get(message.kind, WireMessage)
    return cast(type[WireMessage], _define(message.root, base, namespace, struct_classes(name)))


@cache
def struct_classes(name: str) -> dict[str, type[WireStruct]]:
    """The classes of the structs inside a message, by their names in the schema."""
    message = schema.message(name)
    classes: dict[str, type[WireStruct]] = {}
    for struct in message.structs.values():
        _define_struct(struct, classes, name)
    return classes


def _define_struct(struct: schema.Struct, classes: dict[str, type[WireStruct]], owner: str) -> None:
    if struct.name in classes:
        return
    for field in struct.fields:
        if field.struct is not None:
            _define_struct(field.struct, classes, owner)
    cls = _define(struct, WireStruct, {}, classes)
    cls.__qualname__ = f"{owner}.{struct.name}"
    classes[struct.name] = cls


def _define(
    struct: schema.Struct,
    base: type[WireStruct],
    namespace: dict[str, object],
    classes: dict[str, type[WireStruct]],
) -> type[WireStruct]:
    fields: list[tuple[str, type, object]] = []
    shareable = True
    for field in struct.fields:
        default = field.default
        if default is schema.NEW:
            if field.is_array:
                shareable = False
                default = msgspec.field(default_factory=list)
            else:
                inner = classes[field.type]
                default = inner.DEFAULT
                if default is None:
                    shareable = False
                    default = msgspec.field(default_factory=inner)
        fields.append((field.name, object, default))
    fields.append((_TAGS, object, ()))
    namespace = {**namespace, "SCHEMA": struct}
    made = msgspec.defstruct(
        struct.name, fields, bases=(base,), namespace=namespace, module=_MODULE, eq=False
    )
    cls = cast(type[WireStruct], made)
    cls.DEFAULT = None
    if shareable:
        frozen = msgspec.defstruct(struct.name, [], bases=(cls,), frozen=True, module=_MODULE, eq=False)
        cls.DEFAULT = cast(type[WireStruct], frozen)()
    return cls
