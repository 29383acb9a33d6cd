"""What can go wrong in a mirror, as sentences that say what to do."""

from __future__ import annotations

from ottla.errors import ApiException, ErrorCode


class MirrorError(Exception):
    """A sentence for the user: a wrong file, or a cluster that cannot be mirrored."""


class LaneFenced(ApiException):
    """Another process took a lane over: this one must not write any more."""

    def __init__(self, transactional_id: str, code: ErrorCode) -> None:
        super().__init__(
            code,
            f"another process took {transactional_id} over ({code.name}): this mirror stops. Run one mirror for a flow",
        )


class PartitionStopped(Exception):
    """One partition cannot go on; the others of its flow do."""
