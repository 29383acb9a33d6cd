"""Where the leader listens, left out of answers whose version does not tell it."""

from __future__ import annotations

from ottla.api.base import Message


def fitting(answer: Message, version: int, *, told_from: int) -> Message:
    """The answer as this version has it."""
    if version < told_from:
        answer.node_endpoints = []
    return answer
