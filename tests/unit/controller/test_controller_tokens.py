"""Delegation tokens as the controller decides about them, on a clock that stands still."""

from __future__ import annotations

import hashlib
import hmac as hmac_module
from typing import Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.controller.settings import Settings
from ottla.controller.tokens import (
    MAX_SWEPT,
    create_token,
    expire_token,
    renew_token,
    sweep_expired_tokens,
)
from ottla.errors import ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import DELEGATION_TOKENS_FROM, LATEST_METADATA_VERSION
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.snapshot import image_to_records
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    FeatureLevelRecord,
    RenewDelegationTokenRequest,
)

DAY_MS = 86_400_000
NOW = 1_700_000_000_000
SETTINGS = Settings(BrokerConfig.single_node({"delegation.token.secret.key": "cluster-key"}), "c")
Renewer = CreateDelegationTokenRequest.CreatableRenewers


def replayed(image: MetadataImage, records: Any) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(image.offset + 1, 1)


def at_version(level: int) -> MetadataImage:
    return replayed(EMPTY_IMAGE, [FeatureLevelRecord(name="metadata.version", feature_level=level)])


IMAGE = at_version(LATEST_METADATA_VERSION)


class Tokens:
    """A controller with one token of alice that bob may renew."""

    def __init__(self, **request: Any) -> None:
        fields = {"renewers": [Renewer(principal_type="User", principal_name="bob")], "max_lifetime_ms": -1}
        result = create_token(
            IMAGE,
            CreateDelegationTokenRequest(**fields | request),
            SETTINGS,
            "User:alice",
            NOW,
            bytes(range(16)),
        )
        self.response = result.response
        self.image = replayed(IMAGE, result.records)
        self.hmac = result.response.hmac

    @property
    def token(self) -> Any:
        return self.image.tokens[self.response.token_id]

    def renew(self, who: str, period_ms: int, now_ms: int = NOW, hmac: bytes | None = None) -> Any:
        request = RenewDelegationTokenRequest(hmac=hmac or self.hmac, renew_period_ms=period_ms)
        result = renew_token(self.image, request, SETTINGS, who, now_ms)
        self.image = replayed(self.image, result.records)
        return result.response

    def expire(self, who: str, period_ms: int, now_ms: int = NOW, hmac: bytes | None = None) -> Any:
        request = ExpireDelegationTokenRequest(hmac=hmac or self.hmac, expiry_time_period_ms=period_ms)
        result = expire_token(self.image, request, SETTINGS, who, now_ms)
        self.image = replayed(self.image, result.records)
        return result.response


def test_a_new_token_lives_for_a_day_and_a_week_at_most() -> None:
    tokens = Tokens()
    response = tokens.response
    assert response.error_code == ErrorCode.NONE
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms) == (NOW, NOW + DAY_MS)
    assert response.max_timestamp_ms == NOW + 7 * DAY_MS
    secret = hmac_module.new(b"cluster-key", response.token_id.encode(), hashlib.sha512).digest()
    assert response.hmac == secret
    assert (response.principal_type, response.principal_name) == ("User", "alice")
    assert tokens.token.owner == tokens.token.requester == "User:alice"
    assert tokens.token.renewers == ("User:bob",)
    again = replayed(EMPTY_IMAGE, image_to_records(tokens.image))
    assert again.tokens == tokens.image.tokens
    assert secret.hex() not in repr(tokens.image)


def test_a_shorter_life_is_granted_a_longer_one_is_not() -> None:
    assert Tokens(max_lifetime_ms=1000).response.expiry_timestamp_ms == NOW + 1000
    assert Tokens(max_lifetime_ms=30 * DAY_MS).response.max_timestamp_ms == NOW + 7 * DAY_MS


def test_a_token_may_be_for_another_owner() -> None:
    tokens = Tokens(owner_principal_type="User", owner_principal_name="carol")
    assert (tokens.token.owner, tokens.token.requester) == ("User:carol", "User:alice")
    # The requester has a say in it only as owner or renewer.
    assert tokens.renew("User:alice", -1).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.renew("User:carol", -1).error_code == ErrorCode.NONE


def test_renewers_are_users() -> None:
    renewers = [Renewer(principal_type="Group", principal_name="g")]
    request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
    result = create_token(IMAGE, request, SETTINGS, "User:alice", NOW, bytes(16))
    assert result.response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE and not result.records


@pytest.mark.parametrize("who", ["User:alice", "User:bob"])
def test_owner_and_renewers_may_renew_up_to_the_longest_life(who: str) -> None:
    tokens = Tokens()
    assert tokens.renew(who, 1000).expiry_timestamp_ms == NOW + 1000 == tokens.token.expiration_timestamp
    assert tokens.renew(who, -1).expiry_timestamp_ms == NOW + DAY_MS
    assert tokens.renew(who, 10 * DAY_MS).expiry_timestamp_ms == NOW + DAY_MS
    for day in range(1, 7):
        assert tokens.renew(who, -1, NOW + day * DAY_MS).error_code == ErrorCode.NONE
    assert tokens.token.expiration_timestamp == NOW + 7 * DAY_MS


def test_what_cannot_be_renewed() -> None:
    tokens = Tokens()
    assert tokens.renew("User:eve", -1).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.renew("User:alice", -1, hmac=b"x").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    expired = tokens.renew("User:alice", -1, NOW + DAY_MS + 1)
    assert expired.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_can_end_sooner_or_at_once() -> None:
    tokens = Tokens()
    assert tokens.expire("User:eve", -1).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.expire("User:alice", -1, hmac=b"x").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert tokens.expire("User:bob", 5000).expiry_timestamp_ms == NOW + 5000
    late = tokens.expire("User:bob", 5000, NOW + 5001)
    assert late.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert tokens.expire("User:alice", -1, NOW + 9000).expiry_timestamp_ms == NOW + 9000
    assert not tokens.image.tokens
    assert tokens.expire("User:alice", -1).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_expired_tokens_are_swept_in_parts() -> None:
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    image = IMAGE
    for number in range(MAX_SWEPT + 1):
        uuid = number.to_bytes(16, "big")
        image = replayed(image, create_token(image, request, SETTINGS, "User:a", NOW, uuid).records)
    assert sweep_expired_tokens(image, NOW + DAY_MS).records == []
    first = sweep_expired_tokens(image, NOW + DAY_MS + 1)
    assert (len(first.records), first.response) == (MAX_SWEPT, True)
    rest = sweep_expired_tokens(replayed(image, first.records), NOW + DAY_MS + 1)
    assert (len(rest.records), rest.response) == (1, False)


@pytest.mark.parametrize(
    ("image", "settings", "code"),
    [
        (IMAGE, Settings(BrokerConfig.single_node(), "c"), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (at_version(DELEGATION_TOKENS_FROM - 1), SETTINGS, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_without_a_key_or_with_an_old_cluster_there_are_no_tokens(
    image: MetadataImage, settings: Settings, code: ErrorCode
) -> None:
    create = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
    renew = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
    expire = ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)
    assert create_token(image, create, settings, "User:a", NOW, bytes(16)).response.error_code == code
    assert renew_token(image, renew, settings, "User:a", NOW).response.error_code == code
    assert expire_token(image, expire, settings, "User:a", NOW).response.error_code == code
