"""The records that a controller writes when it becomes active: those of a new cluster, or the end of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.result import ControllerResult
from ottla.controller.settings import MIN_ISR_KEY, Settings
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import ELR_VERSION, METADATA_VERSION, TRANSACTIONS_FROM
from ottla.metadata.image import ENTITY_DEFAULT, MetadataImage
from ottla.wire.classes import WireMessage
from ottla.wire.enums import ConfigResourceType
from ottla.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def activation_records(
    image: MetadataImage, bootstrap: Sequence[WireMessage], settings: Settings, *, in_transaction: bool
) -> ControllerResult[None]:
    """`bootstrap` are the records that formatting wrote for a new cluster. `in_transaction`: the log ends in one."""
    abort = [AbortTransactionRecord(reason="Controller failover")] if in_transaction else []
    if image.metadata_version >= 0:
        return ControllerResult(abort, None)
    levels = {
        record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        raise ApiException(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "The metadata log is empty and the directory has no bootstrap records: it was not formatted.",
        )
    records = list(bootstrap)
    if levels.get(ELR_VERSION, 0) > 0:
        # ELR needs one min.insync.replicas for all brokers: the value of the file becomes the cluster's.
        records.append(
            ConfigRecord(
                resource_type=ConfigResourceType.BROKER,
                resource_name=ENTITY_DEFAULT,
                name=MIN_ISR_KEY,
                value=str(settings.static_min_insync_replicas),
            )
        )
    if levels[METADATA_VERSION] >= TRANSACTIONS_FROM:
        begin = BeginTransactionRecord(name="Bootstrap records")
        return ControllerResult([*abort, begin, *records, EndTransactionRecord()], None)
    return ControllerResult(records, None)
