"""`ottla delegation-tokens`: what kafka-delegation-tokens does."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import click

from ottla.admin.users import Principal, create_token, describe_tokens, expire_token, renew_token
from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, require, tool
from ottla.cli.tools.columns import row
from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.principals import parse_principal
from ottla.cli.tools.values import parse_int

_TITLES: Final = (
    *("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"),
)
_WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)


class DelegationTokensFlags(Flags):
    """The flags of `ottla delegation-tokens`."""

    create: bool
    renew: bool
    expire: bool
    describe: bool
    owner_principal: tuple[str, ...]
    renewer_principal: tuple[str, ...]
    max_life_time_period: str | None
    renew_time_period: str | None
    expiry_time_period: str | None
    hmac: str | None


@tool(
    "delegation-tokens",
    click.option("--create", is_flag=True, help="Make a token."),
    click.option("--renew", is_flag=True, help="Let a token live longer."),
    click.option("--expire", is_flag=True, help="Let a token end sooner."),
    click.option("--describe", is_flag=True, help="Show tokens."),
    click.option("--owner-principal", multiple=True, metavar="TYPE:NAME", help="Whose token it is."),
    click.option("--renewer-principal", multiple=True, metavar="TYPE:NAME", help="Who may renew it."),
    click.option(
        "--max-life-time-period", metavar="MS", help="Create: how long at most; -1 for the default."
    ),
    click.option("--renew-time-period", metavar="MS", help="Renew: for how long; -1 for the default."),
    click.option("--expiry-time-period", metavar="MS", help="Expire: in how long; -1 for at once."),
    click.option("--hmac", metavar="BASE64", help="The token's HMAC."),
)
def delegation_tokens(session: Session, flags: DelegationTokensFlags) -> None:
    """Create, renew, expire or describe delegation tokens."""
    action = exactly_one(flags, "create", "renew", "expire", "describe")
    required, refused = _RULES[action]
    require(flags, *required)
    not_with(flags, action, *refused)
    if not session.properties:
        raise click.UsageError(
            "--command-config is required here: tokens are given only to those who have said who they are"
        )
    {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}[action](session, flags)


_RULES: Final = {
    "create": (("max_life_time_period",), ("hmac", "renew_time_period", "expiry_time_period")),
    "renew": (
        ("hmac", "renew_time_period"),
        ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    ),
    "expire": (
        ("hmac", "expiry_time_period"),
        ("max_life_time_period", "renew_time_period", "owner_principal"),
    ),
    "describe": (
        (),
        ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
    ),
}
"""Of each action: the flags that it needs, and those that contradict it."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A token, as the cluster describes it."""

    id: str
    hmac: str
    owner: Principal
    requester: Principal
    renewers: list[Principal]
    issued_ms: int
    expiry_ms: int
    max_ms: int

    def cells(self) -> tuple[str, ...]:
        moments = (self.issued_ms, self.expiry_ms, self.max_ms)
        return (
            *(self.id, self.hmac, str(self.owner), str(self.requester), _listed(self.renewers)),
            *(_moment(each) for each in moments),
        )

    def document(self) -> dict[str, object]:
        return {
            "id": self.id,
            "hmac": self.hmac,
            "owner": str(self.owner),
            "requester": str(self.requester),
            "renewers": [str(each) for each in self.renewers],
            "issued_ms": self.issued_ms,
            "expiry_ms": self.expiry_ms,
            "max_ms": self.max_ms,
        }


def _listed(principals: list[Principal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%dT%H:%M")


def _show(session: Session, tokens: list[_Token]) -> None:
    lines: list[str] = []
    for cells in [_TITLES, *(token.cells() for token in tokens)]:
        lines += ["", row(cells, _WIDTHS)]
    session.result([token.document() for token in tokens], lines)


def _create(session: Session, flags: DelegationTokensFlags) -> None:
    renewers = [parse_principal(text) for text in flags.renewer_principal]
    owners = [parse_principal(text) for text in flags.owner_principal]
    life_ms = parse_int("--max-life-time-period", flags.max_life_time_period)
    session.print(
        f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{life_ms}"
    )
    response = create_token(session.cluster, life_ms, renewers, owners[0] if owners else None)
    session.print(f"Created delegation token with tokenId : {response.token_id}")
    token = _Token(
        response.token_id,
        base64.b64encode(response.hmac).decode(),
        Principal(response.principal_type, response.principal_name),
        Principal(response.token_requester_principal_type, response.token_requester_principal_name),
        renewers,
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
    )
    _show(session, [token])


def _hmac(flags: DelegationTokensFlags) -> bytes:
    assert flags.hmac is not None
    try:
        return base64.b64decode(flags.hmac, validate=True)
    except binascii.Error:
        raise UsageProblem(f"--hmac {flags.hmac}: expected base64") from None


def _renew(session: Session, flags: DelegationTokensFlags) -> None:
    period_ms = parse_int("--renew-time-period", flags.renew_time_period)
    session.print(f"Calling renew token operation with hmac :{flags.hmac} , renew-time-period :{period_ms}")
    _show_expiry(session, "renew", renew_token(session.cluster, _hmac(flags), period_ms))


def _expire(session: Session, flags: DelegationTokensFlags) -> None:
    period_ms = parse_int("--expiry-time-period", flags.expiry_time_period)
    session.print(f"Calling expire token operation with hmac :{flags.hmac} , expire-time-period :{period_ms}")
    _show_expiry(session, "expire", expire_token(session.cluster, _hmac(flags), period_ms))


def _show_expiry(session: Session, what: str, expiry_ms: int) -> None:
    line = f"Completed {what} operation. New expiry date : {_moment(expiry_ms)}"
    session.result({"expiry_ms": expiry_ms}, [line])


def _describe(session: Session, flags: DelegationTokensFlags) -> None:
    owners = [parse_principal(text) for text in flags.owner_principal]
    if owners:
        session.print(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        session.print("Calling describe token operation for current user.")
    response = describe_tokens(session.cluster, owners).tokens
    session.print(f"Total number of tokens : {len(response)}", end="")
    _show(
        session,
        [
            _Token(
                each.token_id,
                base64.b64encode(each.hmac).decode(),
                Principal(each.principal_type, each.principal_name),
                Principal(each.token_requester_principal_type, each.token_requester_principal_name),
                [Principal(who.principal_type, who.principal_name) for who in each.renewers],
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in response
        ],
    )
