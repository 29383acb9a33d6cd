"""Quotas as the controller decides about them, with Kafka's errors."""

from __future__ import annotations

import pytest

from ottla.controller.client_quotas import MAX_RECORDS, alter_client_quotas
from ottla.errors import ErrorCode
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.metadata.snapshot import image_to_records
from ottla.wire.messages import AlterClientQuotasRequest

Entry = AlterClientQuotasRequest.EntryData
Op = AlterClientQuotasRequest.OpData
Part = AlterClientQuotasRequest.EntityData


def entry(entity: dict[str, str | None], *removed: str, **values: float) -> Entry:
    return Entry(
        entity=[Part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[Op(key=key, value=value, remove=False) for key, value in values.items()]
        + [Op(key=key, value=0.0, remove=True) for key in removed],
    )


def altered(
    image: MetadataImage, *entries: Entry, validate_only: bool = False
) -> tuple[MetadataImage, list[str]]:
    result = alter_client_quotas(
        image, AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    )
    assert all(each.error_code in (0, ErrorCode.INVALID_REQUEST) for each in result.response.entries)
    delta = MetadataDelta(image)
    delta.replay_all(result.records)
    return delta.apply(image.offset + 1, 1), [each.error_message or "" for each in result.response.entries]


ALICE = (("user", "alice"),)


def test_quotas_are_set_changed_and_removed() -> None:
    image, errors = altered(
        EMPTY_IMAGE,
        entry({"user": "alice"}, producer_byte_rate=1024.0, request_percentage=12.5),
        entry({"user": None, "client-id": "c"}, consumer_byte_rate=5.0),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=3.0),
    )
    assert errors == ["", "", ""]
    assert image.client_quotas == {
        ALICE: {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        (("client-id", "c"), ("user", None)): {"consumer_byte_rate": 5.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
    }
    again = MetadataDelta(EMPTY_IMAGE)
    again.replay_all(image_to_records(image))
    assert again.apply(0, 0).client_quotas == image.client_quotas
    image, _ = altered(image, entry({"user": "alice"}, "request_percentage", "consumer_byte_rate"))
    assert image.client_quotas[ALICE] == {"producer_byte_rate": 1024.0}
    image, _ = altered(image, entry({"user": "alice"}, "producer_byte_rate"))
    assert ALICE not in image.client_quotas


def test_what_does_not_change_writes_no_record() -> None:
    image, _ = altered(EMPTY_IMAGE, entry({"user": "alice"}, producer_byte_rate=1.0))
    request = AlterClientQuotasRequest(
        entries=[entry({"user": "alice"}, "consumer_byte_rate", producer_byte_rate=1.0)]
    )
    assert alter_client_quotas(image, request).records == []


def test_a_request_that_only_validates_changes_nothing() -> None:
    image, errors = altered(EMPTY_IMAGE, entry({"user": "a"}, producer_byte_rate=1.0), validate_only=True)
    assert errors == [""] and not image.client_quotas


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry({}, producer_byte_rate=1.0), "Invalid empty client quota entity"),
        (entry({"group": "g"}, producer_byte_rate=1.0), "Unhandled client quota entity type: group"),
        (entry({"user": ""}, producer_byte_rate=1.0), "Empty user not supported"),
        (
            entry({"ip": "10.0.0.1", "user": "a"}, connection_creation_rate=1.0),
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        (entry({"user": "a"}, bytes=1.0), "Invalid configuration key bytes"),
        (
            entry({"user": "a"}, connection_creation_rate=1.0),
            "Invalid configuration key connection_creation_rate",
        ),
        (entry({"user": "a"}, producer_byte_rate=0.0), "Quota producer_byte_rate must be greater than 0"),
        (
            entry({"user": "a"}, producer_byte_rate=float("nan")),
            "Quota producer_byte_rate must be greater than 0",
        ),
        (entry({"user": "a"}, producer_byte_rate=1.5), "producer_byte_rate cannot be a fractional value."),
        (
            entry({"user": "a"}, producer_byte_rate=1e19),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            entry({"ip": None}, connection_creation_rate=3e9),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_what_is_wrong_is_refused_and_the_rest_is_done(bad: Entry, message: str) -> None:
    image, errors = altered(EMPTY_IMAGE, bad, entry({"user": "good"}, producer_byte_rate=1.0))
    assert errors == [message, ""]
    assert list(image.client_quotas) == [(("user", "good"),)]


def test_a_key_or_an_entity_may_not_come_twice() -> None:
    twice = entry({"user": "a"}, "producer_byte_rate", producer_byte_rate=1.0)
    image, errors = altered(EMPTY_IMAGE, twice)
    assert errors == ["Ignoring duplicate entity ClientQuotaEntity(entries={user=a})"]
    assert not image.client_quotas


def test_a_request_has_a_bound() -> None:
    entries = [entry({"user": str(n)}, producer_byte_rate=1.0) for n in range(MAX_RECORDS + 1)]
    image, errors = altered(EMPTY_IMAGE, *entries)
    assert set(errors) == {f"A request may change {MAX_RECORDS} quotas at most"} and not image.client_quotas
