"""The settings of an application, and the directory that it keeps its state in."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MAX_OFFSETS_PER_BATCH: Final = 1_000_000
"""A bound on what one micro-batch reads, so that the first one after a long stop has an end."""

BROKER_TIMEOUT_MS: Final = 5_000
"""The time that an application waits for a first broker."""


def state_home() -> Path:
    """The directory of all applications: $OTTLA_STREAMS_DIR, else a directory under ~/.local/state."""
    chosen = os.environ.get("OTTLA_STREAMS_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "ottla" / "streams"


@dataclass(slots=True)
class StreamsSettings:
    """The settings of a `StreamsApp`. `client` has Kafka's client settings and `spark` has Spark's, by their own names.

    >>> settings = StreamsSettings("127.0.0.1:9092", create_topics=True, spark={"spark.ui.enabled": "false"})
    >>> settings.exactly_once
    True
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    """The cluster to read from and write to."""
    master: str | None = None
    """Spark's master; without it $SPARK_MASTER, else this machine with all cores."""
    state_dir: Path | None = None
    """The directory of checkpoints and status; without it `state_home()`."""
    exactly_once: bool = True
    """Write each micro-batch as one transaction, together with its offsets."""
    max_offsets_per_batch: int = MAX_OFFSETS_PER_BATCH
    """The most records of one micro-batch."""
    trigger_ms: int = 0
    """The least time between the starts of two micro-batches; 0 starts the next one at once."""
    create_topics: bool = False
    """Create topics that are missing, with one partition."""
    real_time: bool = False
    """Milliseconds instead of micro-batches: for topologies of expressions without state, written at least once."""
    low_latency: bool = False
    """Let Spark's JVM compile its code quickly: small batches are faster, long runs take up to twice as long. With a
    local master, Spark writes no `.crc` files beside its own."""
    fused_reader: bool = True
    """Read topics with Ottla's reader in the tasks of the first stage, instead of with Spark's Kafka source."""
    client: dict[str, str] = field(default_factory=dict, repr=False)
    spark: dict[str, str] = field(default_factory=dict)
    marks_topic: str | None = None
    """The topic that remembers the last batch of each application; None for the one that a cluster's sinks share."""

    def directory(self, application_id: str) -> Path:
        """The directory of an application's checkpoint, manifest and status.

        >>> StreamsSettings(state_dir=Path("state")).directory("word-count").as_posix()
        'state/word-count'
        """
        return (self.state_dir or state_home()) / application_id
