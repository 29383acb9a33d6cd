"""`ottla migrate next`: waits until a node may be stopped, names it, and waits until it is back and in sync."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ottla.cli.migrate.order import (
    ClusterView,
    NodeView,
    System,
    commands,
    consequences,
    reasons_to_wait,
    replacement_order,
)
from ottla.errors import ApiException, ErrorCode

_LOOK_EACH_S: Final = 0.5
_SAY_EACH_S: Final = 10.0

Look = Callable[[], ClusterView]
Say = Callable[[str], None]


class TookTooLong(ApiException):
    """The cluster did not get where it should within the time limit."""


class Stepper:
    """One step of a migration. It only looks: what stops and starts nodes is the person who reads what it says."""

    def __init__(
        self,
        look: Look,
        say: Say,
        target: System,
        timeout_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._look = look
        self._say = say
        self._target = target
        self._timeout_s = timeout_s
        self._now = now
        self._pause = pause

    def next_node(self) -> tuple[ClusterView, NodeView | None]:
        """Wait until every replica is in sync, then the node to replace; None if all are."""
        view = self._until(lambda view: reasons_to_wait(view), "before the next node may be stopped")
        order = replacement_order(view, self._target)
        return view, order[0] if order else None

    def describe(self, view: ClusterView, node: NodeView) -> None:
        """Say which node is next, what its absence means, and what to type."""
        count = len(view.nodes)
        done = count - len(replacement_order(view, self._target))
        self._say(
            f"{done} of {count} nodes run {self._target.value}. Next is node {node.id} at {node.address}"
        )
        self._say(
            f"    it is {node.roles}, runs {node.runs}, leads {node.leaders} and holds {node.replicas} partitions"
            + ("; it is the active controller" if node.leads_quorum else "")
        )
        for text in consequences(view, node):
            self._say(f"    {text}")
        self._say("On its machine:")
        for command, purpose in commands(node, self._target):
            self._say(f"    {command:<48} # {purpose}")

    def watch(self, node: NodeView) -> ClusterView:
        """Wait until the node runs the target, and until every replica is in sync again."""
        began = self._now()

        def not_replaced(view: ClusterView) -> list[str]:
            found = view.node(node.id)
            if found is None or found.system is System.UNKNOWN:
                return [f"node {node.id} is away: start {self._target.value} there"]
            if found.system is not self._target:
                return [f"node {node.id} still runs {found.runs}"]
            return []

        self._until(not_replaced, f"for {self._target.value} on node {node.id}")
        self._say(f"node {node.id} runs {self._target.value}; now its replicas catch up")
        view = self._until(reasons_to_wait, "for all replicas to be in sync")
        self._say(f"node {node.id} is replaced and everything is in sync, after {self._now() - began:.0f} s")
        return view

    def _until(self, reasons: Callable[[ClusterView], list[str]], what: str) -> ClusterView:
        """Look until there is no reason to wait, and say why it waits and how much is left."""
        began = said_at = self._now()
        said = ""
        most = 0
        while True:
            try:
                view = self._look()
                found = reasons(view)
                left = len(view.under_replicated)
            except ApiException as error:
                found, left = [f"the cluster does not answer: {error.message or error.code.name}"], 0
            else:
                if not found:
                    return view
            now = self._now()
            most = max(most, left)
            text = "; ".join(found)
            if self._timeout_s <= 0:
                raise TookTooLong(ErrorCode.REQUEST_TIMED_OUT, f"no node may be stopped now: {text}")
            if text != said or now - said_at >= _SAY_EACH_S:
                self._say(f"waiting {what}: {text} ({self._progress(now - began, most, left)})")
                said, said_at = text, now
            if now - began > self._timeout_s:
                raise TookTooLong(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"gave up after {now - began:.0f} s of waiting {what}: {text}; run the command again to go on",
                )
            self._pause(_LOOK_EACH_S)

    @staticmethod
    def _progress(waited_s: float, most: int, left: int) -> str:
        """The time so far, and how long the rest of the replicas takes at this pace."""
        done = most - left
        if left and done and waited_s > 1:
            return f"{waited_s:.0f} s so far, about {waited_s / done * left:.0f} s left"
        return f"{waited_s:.0f} s so far"
