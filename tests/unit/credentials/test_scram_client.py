"""The client's side of SCRAM, against the example of RFC 7677 and against servers that cheat."""

from __future__ import annotations

import pytest

from ottla.credentials.sasl_client import LoginFailed, ScramClient
from ottla.credentials.secret import Secret

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(user: str = "user") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", user, Secret("pencil"), NONCE)


def test_the_example_of_the_rfc() -> None:
    client = exchange()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.next(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.next(SERVER_FINAL) is None


def test_names_with_signs_of_the_exchange_are_escaped() -> None:
    assert exchange("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    "server_first",
    [
        SERVER_FIRST.replace(b"r=rO", b"r=xx"),
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=99999999999"),
        b"e=other-error",
        pytest.param(SERVER_FIRST.replace(b"gQ==", b"gQ="), id="a salt that is not base64"),
        pytest.param(SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), id="thousands of digits"),
    ],
)
def test_a_server_that_does_not_keep_to_it_is_refused(server_first: bytes) -> None:
    with pytest.raises(LoginFailed):
        exchange().next(server_first)


@pytest.mark.parametrize(
    "server_final", [b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", b"e=invalid-proof", b""]
)
def test_a_server_that_does_not_know_the_password_is_refused(server_final: bytes) -> None:
    client = exchange()
    client.next(SERVER_FIRST)
    with pytest.raises(LoginFailed):
        client.next(server_final)
