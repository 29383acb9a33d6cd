"""The states of a classic group and the transitions between them.

EMPTY ────────────▶ PREPARING_REBALANCE ──all joined, or time is up──▶ COMPLETING_REBALANCE
  ▲  first join        ▲    │      ▲                                      │          │
  │                    │    │      └── a member joins, leaves or fails ───┘          │ the leader syncs
  └── no member left ──┼────┘                                                        ▼
                       └────────── a member joins, leaves or fails ──────────────  STABLE
any ──▶ DEAD  (deleted, or coordinated by another broker)
"""

from __future__ import annotations

from enum import Enum


class ClassicState(Enum):
    """By the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_BEFORE = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
    ClassicState.DEAD: frozenset(ClassicState),
}
"""Which states may come before each."""
