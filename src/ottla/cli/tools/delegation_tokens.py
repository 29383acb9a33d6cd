"""`ottla delegation-tokens`: what kafka-delegation-tokens does."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from ottla.cli.tools.base import Flags, Session, exactly_one, not_with, require, tool
from ottla.cli.tools.columns import row
from ottla.cli.tools.failures import UsageProblem, raise_for
from ottla.cli.tools.principals import Principal, parse_principal
from ottla.cli.tools.values import parse_int
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

_TITLES: Final = (
    *("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"),
)
_WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)


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
def delegation_tokens(session: Session, flags: Flags) -> None:
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
    """What the cluster tells of a token."""

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
    session.tell([token.document() for token in tokens], lines)


def _ask(session: Session, request: Any) -> Any:
    if not session.cluster.supports(request.API_KEY):
        raise ApiException(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled."
        )
    answer = session.cluster.ask(request)
    raise_for(answer.error_code)
    return answer


def _create(session: Session, flags: Flags) -> None:
    renewers = [parse_principal(text) for text in flags.renewer_principal]
    owners = [parse_principal(text) for text in flags.owner_principal]
    life_ms = parse_int("--max-life-time-period", flags.max_life_time_period)
    session.say(
        f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{life_ms}"
    )
    kind = CreateDelegationTokenRequest
    request = kind(
        renewers=[
            kind.CreatableRenewers(principal_type=who.kind, principal_name=who.name) for who in renewers
        ],
        max_lifetime_ms=life_ms,
    )
    if owners:
        request.owner_principal_type, request.owner_principal_name = owners[0]
    told = _ask(session, request)
    session.say(f"Created delegation token with tokenId : {told.token_id}")
    token = _Token(
        told.token_id,
        base64.b64encode(told.hmac).decode(),
        Principal(told.principal_type, told.principal_name),
        Principal(told.token_requester_principal_type, told.token_requester_principal_name),
        renewers,
        told.issue_timestamp_ms,
        told.expiry_timestamp_ms,
        told.max_timestamp_ms,
    )
    _show(session, [token])


def _hmac(flags: Flags) -> bytes:
    try:
        return base64.b64decode(flags.hmac, validate=True)
    except binascii.Error:
        raise UsageProblem(f"--hmac {flags.hmac}: expected base64") from None


def _renew(session: Session, flags: Flags) -> None:
    period_ms = parse_int("--renew-time-period", flags.renew_time_period)
    session.say(f"Calling renew token operation with hmac :{flags.hmac} , renew-time-period :{period_ms}")
    told = _ask(session, RenewDelegationTokenRequest(hmac=_hmac(flags), renew_period_ms=period_ms))
    _tell_expiry(session, "renew", told.expiry_timestamp_ms)


def _expire(session: Session, flags: Flags) -> None:
    period_ms = parse_int("--expiry-time-period", flags.expiry_time_period)
    session.say(f"Calling expire token operation with hmac :{flags.hmac} , expire-time-period :{period_ms}")
    told = _ask(session, ExpireDelegationTokenRequest(hmac=_hmac(flags), expiry_time_period_ms=period_ms))
    _tell_expiry(session, "expire", told.expiry_timestamp_ms)


def _tell_expiry(session: Session, what: str, expiry_ms: int) -> None:
    line = f"Completed {what} operation. New expiry date : {_moment(expiry_ms)}"
    session.tell({"expiry_ms": expiry_ms}, [line])


def _describe(session: Session, flags: Flags) -> None:
    owners = [parse_principal(text) for text in flags.owner_principal]
    if owners:
        session.say(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        session.say("Calling describe token operation for current user.")
    kind = DescribeDelegationTokenRequest
    wanted = [
        kind.DescribeDelegationTokenOwner(principal_type=who.kind, principal_name=who.name) for who in owners
    ]
    told = _ask(session, kind(owners=wanted or None)).tokens
    session.say(f"Total number of tokens : {len(told)}", end="")
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
            for each in told
        ],
    )
