"""UpdateFeatures, activation and blocks of producer ids."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.activation import activation_records
from ottla.controller.features import update_features
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.wire.messages import AllocateProducerIdsRequest, ConfigRecord, UpdateFeaturesRequest
from unit.controller.controller_harness import image_with_brokers, replayed, settings_with

UPGRADE, SAFE, UNSAFE = 1, 2, 3


class Quorum:
    """kraft.version of a quorum whose voters support level 1, or not."""

    kraft_version = 0

    def __init__(self, *, ready: bool = True) -> None:
        self._ready = ready

    def check_kraft_version(self, level: int) -> None:
        if level > self.kraft_version and not self._ready:
            raise ApiException(ErrorCode.INVALID_UPDATE_VERSION, "not all of the voters support it")


def update(
    image: MetadataImage,
    *wanted: tuple[str, int, int],
    version: int = 2,
    quorum: Quorum | None = None,
    **more: Any,
) -> tuple[MetadataImage, Any]:
    cls = UpdateFeaturesRequest
    updates = [
        cls.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in wanted
    ]
    request = cls(feature_updates=updates, **more)
    result = update_features(image, request, settings_with(), version, quorum or Quorum())
    return replayed(image, result.records), result.response


def test_a_feature_is_lowered_and_raised_again() -> None:
    image, answer = update(image_with_brokers(1), ("group.version", 0, SAFE))
    assert answer.error_code == 0
    assert "group.version" not in image.features
    image, answer = update(image, ("group.version", 1, UPGRADE), version=1)
    assert image.features["group.version"] == 1
    assert [(result.feature, result.error_code) for result in answer.results] == [("group.version", 0)]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (("no.such.feature", 1, UPGRADE), "does not support"),
        (("group.version", 2, UPGRADE), "only supports versions 0-1"),
        (("group.version", -1, UPGRADE), "less than 0"),
        (("group.version", 0, UPGRADE), "upgrade type"),
        (("group.version", 1, 9), "upgrade type"),
        (("metadata.version", 29, SAFE), "might be lost"),
        (("metadata.version", 29, UNSAFE), "might be lost"),
        (("metadata.version", 0, SAFE), "requires this feature"),
        (("kraft.version", 2, UPGRADE), "only supports versions 0-1"),
    ],
)
def test_updates_that_are_refused(wanted: tuple[str, int, int], words: str) -> None:
    before = image_with_brokers(1)
    image, answer = update(before, wanted)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert words in answer.error_message
    assert image.features == before.features


def test_kraft_version_is_for_the_quorum_to_raise() -> None:
    before = image_with_brokers(1)
    image, answer = update(before, ("kraft.version", 1, UPGRADE), ("share.version", 0, SAFE))
    assert answer.error_code == 0
    assert "share.version" not in image.features and "kraft.version" not in image.features
    image, answer = update(
        before, ("share.version", 0, SAFE), ("kraft.version", 1, UPGRADE), quorum=Quorum(ready=False)
    )
    assert (answer.error_code, image.features) == (ErrorCode.INVALID_UPDATE_VERSION, before.features)


def test_one_bad_update_refuses_all() -> None:
    before = image_with_brokers(1)
    image, answer = update(before, ("share.version", 0, SAFE), ("group.version", 5, UPGRADE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert image.features == before.features


def test_a_downgrade_is_no_way_up() -> None:
    image, _ = update(image_with_brokers(1), ("share.version", 0, SAFE))
    _, answer = update(image, ("share.version", 1, SAFE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_validate_only_and_the_flag_of_version_0() -> None:
    before = image_with_brokers(1)
    image, answer = update(before, ("group.version", 0, SAFE), validate_only=True)
    assert answer.error_code == 0
    assert image.features == before.features
    cls = UpdateFeaturesRequest
    request = cls(
        feature_updates=[
            cls.FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=True)
        ]
    )
    result = update_features(before, request, settings_with(), 0, Quorum())
    assert result.response.error_code == 0
    assert result.records


def test_enabling_elr_makes_min_isr_one_for_all() -> None:
    image = image_with_brokers(1, elr=False)
    image = replayed(
        image, [ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="2")]
    )
    image, answer = update(image, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert answer.error_code == 0
    assert image.elr_enabled
    assert image.configs.of(4, "")["min.insync.replicas"] == "1"
    assert not image.configs.of(4, "1")


def test_a_new_cluster_begins_with_its_bootstrap_records_in_a_transaction() -> None:
    result = activation_records(EMPTY_IMAGE, bootstrap_records(), settings_with(), in_transaction=False)
    names = [record.NAME for record in result.records]
    assert names == [
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * 6,
        "ConfigRecord",
        "EndTransactionRecord",
    ]
    image = replayed(EMPTY_IMAGE, result.records)
    assert image.features == {
        "metadata.version": 30,
        "transaction.version": 2,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "eligible.leader.replicas.version": 1,
    }
    assert image.configs.of(4, "") == {"min.insync.replicas": "1"}


def test_a_bootstrap_that_broke_off_is_aborted_and_done_again() -> None:
    result = activation_records(EMPTY_IMAGE, bootstrap_records(), settings_with(), in_transaction=True)
    assert [record.NAME for record in result.records][:2] == [
        "AbortTransactionRecord",
        "BeginTransactionRecord",
    ]


def test_a_cluster_that_exists_needs_no_activation_records() -> None:
    image = image_with_brokers(1)
    assert not activation_records(image, [], settings_with(), in_transaction=False).records
    (abort,) = activation_records(image, [], settings_with(), in_transaction=True).records
    assert abort.NAME == "AbortTransactionRecord"


def test_an_empty_log_without_bootstrap_records_is_an_error() -> None:
    with pytest.raises(ApiException):
        activation_records(EMPTY_IMAGE, [], settings_with(), in_transaction=False)


def test_old_metadata_versions_have_no_transactions() -> None:
    result = activation_records(EMPTY_IMAGE, bootstrap_records(7), settings_with(), in_transaction=False)
    assert [record.NAME for record in result.records] == ["FeatureLevelRecord"]


def test_producer_ids_come_in_blocks_that_follow_each_other() -> None:
    image = image_with_brokers(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=image.brokers[1].epoch)
    starts = []
    for _ in range(3):
        result = allocate_producer_ids(image, request)
        assert result.response.producer_id_len == 1000
        starts.append(result.response.producer_id_start)
        image = replayed(image, result.records)
    assert starts == [0, 1000, 2000]
    with pytest.raises(ApiException) as refused:
        allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=3))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
