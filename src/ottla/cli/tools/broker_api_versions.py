"""`ottla broker-api-versions`: what kafka-broker-api-versions does."""

from __future__ import annotations

from ottla.admin.connection import Connection
from ottla.cli.tools.base import Flags, Session, tool
from ottla.wire.apis import API_VERSIONS, ApiKey

_NOT_FOR_BROKERS = frozenset(
    {
        *(ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN),
        *(ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.ALTER_PARTITION),
        *(ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT),
        *(ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLER_REGISTRATION, ApiKey.ASSIGN_REPLICAS_TO_DIRS),
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""APIs that no client expects of a broker."""


@tool("broker-api-versions")
def broker_api_versions(session: Session, flags: Flags) -> None:
    """Show which versions of which APIs the brokers speak."""
    documents: list[object] = []
    for node_id, node in sorted(session.cluster.nodes().items()):
        connection = session.cluster.connection(node_id)
        versions = {
            API_VERSIONS[key].name if key in API_VERSIONS else str(key): {"min": low, "max": high}
            for key, (low, high) in sorted(connection.versions.items())
        }
        documents.append({"broker": node_id, "host": node.host, "port": node.port, "apis": versions})
        rack = "null" if node.rack is None else node.rack
        session.print(
            f"{node.host}:{node.port} (id: {node_id} rack: {rack} isFenced: false) -> (\n\t"
            + ",\n\t".join(_texts(connection))
            + "\n)"
        )
    if session.as_json:
        session.dump(documents)


def _texts(connection: Connection) -> list[str]:
    keys = {key for key in API_VERSIONS if key not in _NOT_FOR_BROKERS} | set(connection.versions)
    return [_text(key, connection.versions.get(key)) for key in sorted(keys)]


def _text(key: int, theirs: tuple[int, int] | None) -> str:
    ours = API_VERSIONS.get(key)
    title = f"{ours.name if ours else 'UNKNOWN'}({key}): "
    if theirs is None:
        return title + "UNSUPPORTED"
    low, high = theirs
    text = title + (str(low) if low == high else f"{low} to {high}")
    if ours is None:
        return text
    if ours.max_version < low:
        return text + " [unusable: node too new]"
    if high < ours.min_version:
        return text + " [unusable: node too old]"
    return f"{text} [usable: {min(ours.max_version, high)}]"
