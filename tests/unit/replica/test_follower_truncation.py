"""Where a follower cuts its log when its leader says that the two diverge."""

from __future__ import annotations

import pytest

from ottla.replica.replica_fetcher import _truncate
from unit.log.log_rig import Rig


def follower() -> Rig:
    """Epoch 1 has the offsets 0 to 2, epoch 3 has 3 and 4, epoch 6 has 5 to 7; 2 is the high watermark."""
    rig = Rig()
    for epoch, count in ((1, 3), (3, 2), (6, 3)):
        for _ in range(count):
            rig.append("x", epoch=epoch)
    rig.log.high_watermark = 2
    return rig


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "kept"),
    [
        (6, 6, 6),  # both have the epoch: the shorter end counts
        (6, 99, 8),
        (3, 4, 4),
        (3, 99, 5),
        (5, 8, 5),  # this epoch is unknown here: what came after the one before it is not the leader's
        (5, 3, 5),  # the next fetch from there says more
        (2, 7, 3),
        (0, 1, 0),  # older than everything here: the logs have no record in common
        (-1, 2, 2),
        (4, -1, 2),  # the leader does not know: only what is replicated is kept
    ],
)
def test_a_follower_cuts_after_the_last_epoch_that_both_have(leader_epoch, leader_end, kept) -> None:
    rig = follower()
    _truncate(rig.log, leader_epoch, leader_end)
    assert rig.log.log_end_offset == kept
