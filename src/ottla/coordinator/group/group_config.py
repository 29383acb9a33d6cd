"""A group's own configs over the broker's."""

from __future__ import annotations

from ottla.coordinator.group.context import GroupContext


def group_setting(context: GroupContext, group_id: str, key: str) -> int:
    """The number that the group's own config sets, else the broker's (whose key is `group.` and the group's key)."""
    text = context.group_config(group_id).get(key.removeprefix("group."))
    return context.config.int(key) if text is None else int(text)
