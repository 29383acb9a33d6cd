"""Every message of the protocol by name: `from ottla.wire.messages import FetchRequest`.

The classes are made from the schema table at first use, so importing this module costs nothing.
"""

from __future__ import annotations

from functools import cache

from ottla.wire import schema
from ottla.wire.classes import WireMessage, WireRequest, WireResponse, message_class


def __getattr__(name: str) -> type[WireMessage]:
    try:
        cls = message_class(name)
    except KeyError:
        raise AttributeError(f"the schema table has no message {name!r}") from None
    globals()[name] = cls
    return cls


@cache
def request_class(api_key: int) -> type[WireRequest[WireResponse]]:
    """The request of an API. KeyError if there is no such API."""
    return message_class(schema.api_message_names()["request", api_key])


@cache
def response_class(api_key: int) -> type[WireResponse]:
    """The response of an API. KeyError if there is no such API."""
    return message_class(schema.api_message_names()["response", api_key])


def all_messages() -> list[type[WireMessage]]:
    """Every message of the table; builds all of the classes."""
    return [message_class(name) for name in schema.message_names()]
