"""Forgets an application: its state, its checkpoint and the offsets of its group."""

from __future__ import annotations

import shutil

from ottla.client.admin import KafkaAdminClient
from ottla.streams import settings as limits
from ottla.streams.error_messages import translate_client_errors
from ottla.streams.errors import StreamsError
from ottla.streams.settings import StreamsSettings
from ottla.streams.status import read_status


def reset(application_id: str, settings: StreamsSettings) -> list[str]:
    """Deletes what an application has kept; returns a line for each thing that is gone."""
    directory = settings.directory(application_id)
    done = []
    if directory.exists():
        status = directory / "status.json"
        if status.exists() and read_status(directory).get("running"):
            raise StreamsError(f"{application_id} is running: stop it first")
        shutil.rmtree(directory)
        done.append(f"state and checkpoint in {directory} are gone")
    with (
        translate_client_errors(),
        KafkaAdminClient.with_kafka_settings(
            settings.bootstrap_servers, settings.client, bootstrap_timeout_ms=limits.BROKER_TIMEOUT_MS
        ) as admin,
    ):
        outcome = admin.delete_groups([application_id]).get(application_id)
    if outcome == "OK":
        done.append(f"the offsets of the group {application_id} are gone")
    return done
