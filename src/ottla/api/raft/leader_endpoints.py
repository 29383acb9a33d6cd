"""Removes the leader's address from responses whose version has no field for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ottla.wire import messages

R = TypeVar(
    "R",
    "messages.VoteResponse",
    "messages.BeginQuorumEpochResponse",
    "messages.EndQuorumEpochResponse",
    "messages.FetchResponse",
    "messages.FetchSnapshotResponse",
)


def without_unsupported_endpoints(response: R, version: int, *, supported_from: int) -> R:
    """The response, without node endpoints in a version below `supported_from`."""
    if version < supported_from:
        response.node_endpoints = []
    return response
