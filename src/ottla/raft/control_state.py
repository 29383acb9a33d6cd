"""The voters and kraft.version that the control records of the log and its snapshot set, now and before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.raft.voters import VoterSet
from ottla.wire import messages

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

SNAPSHOT_AT_START = -1
"""The offset of voters that are in the snapshot at offset 0 and not in the log yet."""


class ControlState:
    """Voters and kraft.version by the offset at which they were written. It starts with the configured voters."""

    __slots__ = ("_kraft_versions", "_static", "_voters")

    def __init__(self, static_voters: VoterSet) -> None:
        self._static = static_voters
        self._voters: list[tuple[int, VoterSet]] = []
        self._kraft_versions: list[tuple[int, int]] = []

    def load_snapshot(self, end_offset: int, kraft_version: int, voters: VoterSet | None) -> None:
        """Replace everything by the content of a snapshot up to `end_offset`."""
        offset = end_offset - 1
        self._kraft_versions = [(offset, kraft_version)]
        self._voters = [] if voters is None else [(offset, voters)]

    def replay(self, offset: int, message: WireMessage) -> None:
        """Apply a control message of the log."""
        if isinstance(message, messages.VotersRecord):
            self._voters.append((offset, VoterSet.from_record(message)))
        elif isinstance(message, messages.KRaftVersionRecord):
            self._kraft_versions.append((offset, message.kraft_version))

    def truncate(self, end_offset: int) -> None:
        """The log was truncated here: drop what was written from this offset on."""
        self._voters = [(o, v) for o, v in self._voters if o < end_offset]
        self._kraft_versions = [(o, v) for o, v in self._kraft_versions if o < end_offset]

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1] if self._voters else self._static

    @property
    def previous_voters(self) -> VoterSet:
        """The voters before the last change. They stay in force if the change is never committed."""
        return self._voters[-2][1] if len(self._voters) > 1 else self._static

    @property
    def voters_offset(self) -> int | None:
        """None for configured voters, `SNAPSHOT_AT_START` for those of the format snapshot."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        return self._kraft_versions[-1][1] if self._kraft_versions else 0

    def at(self, end_offset: int) -> tuple[int, VoterSet | None]:
        """kraft.version and voters of the log up to here (exclusive): the content of a snapshot at this offset."""
        kraft_version = next((v for o, v in reversed(self._kraft_versions) if o < end_offset), 0)
        voters = next((v for o, v in reversed(self._voters) if o < end_offset), None)
        return kraft_version, voters
