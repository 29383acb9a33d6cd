"""Topic names: what Kafka allows, and names that collide in metrics."""

from __future__ import annotations

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.topic_names import colliding_name, is_internal, validate_topic_name, why_invalid


@pytest.mark.parametrize("name", ["a", "sample3", "A-b_c.d", "x" * 249, "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b", "töpic"])
def test_illegal_names_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(ApiException) as refused:
        validate_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert why_invalid(name) in refused.value.message


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    assert colliding_name("a.b", {"a_b"}) == "a_b"
    assert colliding_name("a_b", {"a.b", "a-b"}) == "a.b"
    assert colliding_name("a.b", {"a.b", "ab"}) is None
    assert colliding_name("ab", {"a.b"}) is None


def test_collisions_of_names_with_many_separators() -> None:
    name = "_".join("abcdefghijkl")
    other = ".".join("abcdefghijkl")
    assert colliding_name(name, {other: None, "z": None}) == other
    assert colliding_name(name, {"z": None}) is None


def test_internal_topics() -> None:
    assert is_internal("__transaction_state")
    assert not is_internal("__cluster_metadata2")
