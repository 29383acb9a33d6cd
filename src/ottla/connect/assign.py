"""Who runs which connector: balanced, and sticky, so that a worker that joins moves as few connectors as it must."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def assign(
    members: Iterable[str], connectors: Iterable[str], before: Mapping[str, str]
) -> dict[str, list[str]]:
    """The connectors of each member. `before` says who had which connector.

    >>> assign(["a", "b"], ["x", "y", "z"], {"x": "a", "y": "a", "z": "a"})
    {'a': ['x', 'y'], 'b': ['z']}
    """
    given: dict[str, list[str]] = {member: [] for member in sorted(members)}
    wanted = sorted(connectors)
    if not given:
        return {}
    least, extra = divmod(len(wanted), len(given))
    waiting: list[str] = []
    for connector in wanted:
        held = given.get(before.get(connector, ""))
        if held is None:
            waiting.append(connector)
            continue
        full = sum(len(one) > least for one in given.values())
        room = len(held) < least or (len(held) == least and full < extra)
        (held if room else waiting).append(connector)
    for connector in waiting:
        min(given.values(), key=len).append(connector)
    return {member: sorted(held) for member, held in given.items()}
