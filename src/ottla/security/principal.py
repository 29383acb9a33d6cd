"""Principals: who a connection speaks for, in Kafka's form `Type:name`."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """The authenticated other side of a connection."""

    type: str
    name: str
    token_authenticated: bool = False
    """It has authenticated with a delegation token, and so cannot get another one."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of PLAINTEXT connections and of TLS connections without a client certificate."""


def user(name: str) -> Principal:
    """A principal of the type `User`, the only type that Kafka's own authentication makes."""
    return Principal("User", name)


def parse_principal(text: str) -> Principal:
    """`User:alice`. ValueError without a type, a colon or a name."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is no principal: expected the form principalType:principalName")
    return Principal(kind, name)
