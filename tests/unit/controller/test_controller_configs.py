"""AlterConfigs and IncrementalAlterConfigs as functions of the image."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.configs import alter_configs, check_with_file, incremental_alter_configs
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import CORDONED_LOG_DIRS_FROM
from ottla.metadata.image import MetadataImage
from ottla.wire.enums import AlterConfigOp, ConfigResourceType
from ottla.wire.messages import (
    AlterConfigsRequest,
    FeatureLevelRecord,
    IncrementalAlterConfigsRequest,
    TopicRecord,
)
from unit.controller.controller_harness import image_with_brokers, replayed, settings_with

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
IMAGE = replayed(image_with_brokers(1, 2), [TopicRecord(name="t", topic_id=bytes(15) + b"\x09")])
SET, DELETE, APPEND, SUBTRACT = AlterConfigOp


def change(
    image: MetadataImage,
    *resources: tuple[int, str, list[tuple[str, int, str | None]]],
    validate_only: bool = False,
    forwarded: bool = True,
    **static: str,
) -> tuple[MetadataImage, list[tuple[int, str]], list[Any]]:
    cls = IncrementalAlterConfigsRequest
    request = cls(
        resources=[
            cls.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    cls.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in configs
                ],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )
    result = incremental_alter_configs(image, request, settings_with(**static), forwarded=forwarded)
    answers = [(answer.error_code, answer.error_message or "") for answer in result.response.responses]
    return replayed(image, result.records), answers, list(result.records)


def replace_all(image: MetadataImage, kind: int, name: str, **values: Any) -> tuple[MetadataImage, Any]:
    cls = AlterConfigsRequest
    configs = [cls.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    request = cls(
        resources=[cls.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)]
    )
    result = alter_configs(image, request, settings_with(), forwarded=True)
    return replayed(image, result.records), result.response.responses[0]


def test_set_and_delete_single_keys() -> None:
    image, answers, _ = change(
        IMAGE, (TOPIC, "t", [("retention.ms", SET, "1000"), ("segment.bytes", SET, "2000000")])
    )
    assert answers == [(0, "")]
    assert image.configs.of(TOPIC, "t") == {"retention.ms": "1000", "segment.bytes": "2000000"}
    image, _, _ = change(image, (TOPIC, "t", [("retention.ms", DELETE, None)]))
    assert image.configs.of(TOPIC, "t") == {"segment.bytes": "2000000"}


def test_append_and_subtract_work_on_the_default_too() -> None:
    image, answers, _ = change(IMAGE, (TOPIC, "t", [("cleanup.policy", APPEND, "compact")]))
    assert answers == [(0, "")]
    assert image.configs.of(TOPIC, "t") == {"cleanup.policy": "delete,compact"}
    image, _, _ = change(image, (TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")]))
    assert image.configs.of(TOPIC, "t") == {"cleanup.policy": "compact"}


def test_a_resource_fails_as_a_whole_and_alone() -> None:
    image, answers, _ = change(
        IMAGE,
        (TOPIC, "t", [("retention.ms", SET, "1000"), ("segment.bytes", SET, "many")]),
        (BROKER, "", [("log.retention.ms", SET, "5000")]),
    )
    assert answers[0][0] == ErrorCode.INVALID_CONFIG
    assert "'many'" in answers[0][1]
    assert answers[1] == (0, "")
    assert not image.configs.of(TOPIC, "t")
    assert image.configs.of(BROKER, "")["log.retention.ms"] == "5000"


@pytest.mark.parametrize(
    ("kind", "name", "configs", "code"),
    [
        (TOPIC, "nope", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", [("retention.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "t", [("nope", SET, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("cleanup.policy", SET, "shred")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        (BROKER, "x", [("log.retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", [("log.retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "7", [("log.retention.ms", SET, "1")], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "1", [("node.id", SET, "3")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("log.retention.ms", SET, "soon")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("min.insync.replicas", SET, "2")], ErrorCode.INVALID_CONFIG),
        (BROKER, "", [("min.insync.replicas", DELETE, None)], ErrorCode.INVALID_CONFIG),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "46000")], ErrorCode.INVALID_REQUEST),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        (GROUP, "g", [("share.auto.offset.reset", SET, "never")], ErrorCode.INVALID_CONFIG),
        (METRICS, "", [("interval.ms", SET, "1000")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("interval.ms", SET, "10")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("no.such", SET, "10")], ErrorCode.INVALID_REQUEST),
        (METRICS, "m", [("match", SET, "client_id")], ErrorCode.INVALID_CONFIG),
        (METRICS, "m", [("match", SET, "client_id=[")], ErrorCode.INVALID_CONFIG),
        (1, "t", [("a", SET, "1")], ErrorCode.INVALID_REQUEST),
        (ConfigResourceType.BROKER_LOGGER, "1", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_are_refused(kind: int, name: str, configs: Any, code: ErrorCode) -> None:
    image, answers, records = change(IMAGE, (kind, name, configs))
    assert answers[0][0] == code
    assert answers[0][1]
    assert not records
    assert image.configs == IMAGE.configs


def test_only_a_broker_itself_adds_to_its_cordoned_directories() -> None:
    def cordon(image: MetadataImage, value: str, forwarded: bool = True) -> tuple[MetadataImage, int]:
        resource = (BROKER, "2", [("cordoned.log.dirs", SET, value)])
        image, answers, _ = change(image, resource, forwarded=forwarded)
        return image, answers[0][0]

    image, code = cordon(IMAGE, "/a,/b")
    assert code == ErrorCode.NONE
    assert cordon(IMAGE, "/a", forwarded=False)[1] == ErrorCode.INVALID_CONFIG
    assert cordon(image, "/a, /c", forwarded=False)[1] == ErrorCode.INVALID_CONFIG
    image, code = cordon(image, "/b", forwarded=False)
    assert code == ErrorCode.NONE
    assert image.configs.of(BROKER, "2") == {"cordoned.log.dirs": "/b"}
    assert cordon(image, "", forwarded=False)[1] == ErrorCode.NONE


def test_cordoned_directories_need_a_metadata_version_that_knows_them() -> None:
    older = FeatureLevelRecord(name="metadata.version", feature_level=CORDONED_LOG_DIRS_FROM - 1)
    for operation, value in ((SET, "/a"), (DELETE, None)):
        _, answers, _ = change(
            replayed(IMAGE, [older]), (BROKER, "2", [("cordoned.log.dirs", operation, value)])
        )
        assert answers[0][0] == ErrorCode.INVALID_CONFIG
        assert "4.3-IV0" in answers[0][1]


def test_groups_and_client_metrics_are_stored() -> None:
    image, answers, _ = change(
        IMAGE,
        (
            GROUP,
            "g",
            [("consumer.session.timeout.ms", SET, "50000"), ("share.isolation.level", SET, "read_committed")],
        ),
        (METRICS, "m", [("interval.ms", SET, "1000"), ("match", SET, "client_id=app-.*")]),
    )
    assert answers == [(0, ""), (0, "")]
    assert image.configs.of(GROUP, "g")["consumer.session.timeout.ms"] == "50000"
    assert image.configs.of(METRICS, "m")["match"] == "client_id=app-.*"


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("interval.ms", "bbb", ErrorCode.INVALID_CONFIG),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("unknown", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_client_metrics_are_refused_with_kafkas_codes(key: str, value: str, code: ErrorCode) -> None:
    _, answers, records = change(IMAGE, (METRICS, "m", [(key, SET, value)]))
    assert answers[0][0] == code
    assert not records


def test_validate_only_changes_nothing() -> None:
    image, answers, _ = change(IMAGE, (TOPIC, "t", [("retention.ms", SET, "1")]), validate_only=True)
    assert answers == [(0, "")]
    assert image.configs == IMAGE.configs


def test_a_resource_given_twice_is_refused_twice() -> None:
    _, answers, records = change(
        IMAGE, (TOPIC, "t", [("retention.ms", SET, "1")]), (TOPIC, "t", [("segment.ms", SET, "1")])
    )
    assert [code for code, _ in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert not records


def test_an_unchanged_value_is_written_again_for_brokers_only() -> None:
    image, _, _ = change(
        IMAGE, (TOPIC, "t", [("retention.ms", SET, "1")]), (BROKER, "1", [("log.retention.ms", SET, "1")])
    )
    _, _, records = change(
        image, (TOPIC, "t", [("retention.ms", SET, "1")]), (BROKER, "1", [("log.retention.ms", SET, "1")])
    )
    assert [record.resource_type for record in records] == [BROKER]


def test_a_new_min_isr_clears_who_is_eligible() -> None:
    _, _, records = change(
        IMAGE,
        (TOPIC, "t", [("min.insync.replicas", SET, "2")]),
        (BROKER, "", [("min.insync.replicas", SET, "2")]),
    )
    assert [record.topic_name for record in records if record.NAME == "ClearElrRecord"] == ["t", ""]


def test_alter_configs_replaces_everything() -> None:
    image, _ = replace_all(IMAGE, TOPIC, "t", retention_ms="1", segment_ms="2")
    image, answer = replace_all(image, TOPIC, "t", segment_ms="3")
    assert answer.error_code == 0
    assert image.configs.of(TOPIC, "t") == {"segment.ms": "3"}
    image, _ = replace_all(image, TOPIC, "t")
    assert not image.configs.of(TOPIC, "t")


def test_alter_configs_cannot_remove_the_clusters_min_isr() -> None:
    image, answer = replace_all(IMAGE, BROKER, "", log_retention_ms="5")
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert image.configs == IMAGE.configs


def test_alter_configs_needs_values() -> None:
    _, answer = replace_all(IMAGE, TOPIC, "t", segment_ms=None)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_dynamic_broker_defaults_reach_topic_validation() -> None:
    image, answers, _ = change(IMAGE, (BROKER, "", [("log.cleaner.max.compaction.lag.ms", SET, "100")]))
    assert answers == [(0, "")]
    _, answers, _ = change(image, (TOPIC, "t", [("min.compaction.lag.ms", SET, "500")]))
    assert answers[0][0] == ErrorCode.INVALID_CONFIG


def test_strict_refuses_dynamic_passwords_in_the_clear() -> None:
    key = "listener.name.x.ssl.keystore.password"
    clear, reference = (BROKER, "1", [(key, SET, "s3cret")]), (BROKER, "1", [(key, SET, "${file:/x:y}")])
    strict = {"ottla.security.profile": "strict"}
    _, answers, records = change(IMAGE, clear, **strict)
    assert answers[0][0] == ErrorCode.INVALID_CONFIG
    assert key in answers[0][1]
    assert "s3cret" not in answers[0][1]
    assert not records
    assert change(IMAGE, reference, **strict)[1] == [(0, "")]
    assert change(IMAGE, clear)[1] == [(0, "")]
    assert change(IMAGE, (BROKER, "1", [(key, DELETE, None)]), **strict)[1] == [(0, "")]


def test_a_key_of_the_file_alone_is_refused_before_conflicts_with_the_file() -> None:
    config = settings_with().static
    with pytest.raises(
        ApiException, match=r"Cannot update these configs dynamically: \[security.inter.broker"
    ):
        check_with_file(MetadataImage(), config, {"security.inter.broker.protocol": "SSL"})
