"""Internal topics are asked of the controller once, and not again right after it refused."""

from __future__ import annotations

from ottla.broker.topic_creation import MAX_FAILURES, InternalTopicCreations


def test_a_topic_is_created_once_at_a_time() -> None:
    creations = InternalTopicCreations()
    assert creations.begin(["a", "b"], 0) == ["a", "b"]
    assert creations.begin(["a", "c"], 0) == ["c"]
    creations.end(["a"])
    assert creations.begin(["a", "b"], 0) == ["a"]


def test_a_failure_is_told_for_a_while_and_then_forgotten() -> None:
    creations = InternalTopicCreations()
    creations.begin(["a"], 0)
    creations.end(["a"])
    creations.failed("a", "no room", until_s=100)
    assert creations.begin(["a"], 99) == []
    assert creations.failures(["a", "b"], 99) == {"a": "no room"}
    assert creations.failures(["a"], 100) == {}
    assert creations.begin(["a"], 100) == ["a"]


def test_failures_are_bounded() -> None:
    creations = InternalTopicCreations()
    for number in range(MAX_FAILURES + 1):
        creations.failed(str(number), "no", until_s=1)
    assert creations.failures(["0", "1"], 0) == {"1": "no"}
