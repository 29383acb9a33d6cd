"""A topology held against the topics there are: partition counts, missing topics, topics that do not fit."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.streams.configure import ConfiguredTopology, configure
from ottla.coordinator.group.streams.status import StatusCode
from ottla.coordinator.group.streams.topology import parse_topology, topology_value
from ottla.errors import ApiException, ErrorCode
from unit.coordinator.group.streams.streams_rig import subtopology, topic_info, topology


def configured(topics: dict[str, int], *subtopologies: object) -> ConfiguredTopology:
    return configure(parse_topology(topology(*subtopologies)), 0, topics.get)


def to_create(result: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in result.topics_to_create.items()}


def test_a_topology_survives_its_record() -> None:
    described = topology(
        subtopology("0", ["in"], reads=[topic_info("again", 3)], writes=["again"], together=[([0], [0])])
    )
    parsed = parse_topology(described)
    assert parse_topology(topology_value(parsed)) == parsed
    assert parsed.required_topics() == {"in", "again"}
    assert parsed.subtopology_of("again") == "0"


def test_word_count_has_a_repartition_topic_and_a_changelog() -> None:
    result = configured(
        {"in": 3},
        subtopology("0", ["in"], writes=["counts-repartition"]),
        subtopology("1", [], reads=[topic_info("counts-repartition")], changelogs=["counts-changelog"]),
    )
    assert to_create(result) == {"counts-repartition": 3, "counts-changelog": 3}
    assert result.problem is not None and result.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert [one.task_count for one in result.subtopologies.values()] == [3, 3]
    assert [one.stateful for one in result.subtopologies.values()] == [False, True]
    changelog = result.topics_to_create["counts-changelog"]
    assert changelog.configs == (("cleanup.policy", "compact"),)


def test_it_is_ready_when_all_topics_are_there() -> None:
    topics = {"in": 2, "again": 2, "log": 2}
    result = configured(
        topics,
        subtopology("0", ["in"], writes=["again"]),
        subtopology("1", [], reads=[topic_info("again")], changelogs=["log"]),
    )
    assert result.ready
    assert not result.topics_to_create


def test_source_topics_have_to_exist() -> None:
    result = configured({"a": 1}, subtopology("0", ["a", "b", "c", "d", "e"]))
    assert result.problem == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics b, c, d and 1 additional topics are missing.",
    )
    assert not result.subtopologies


def test_an_internal_topic_with_another_partition_count_does_not_fit() -> None:
    result = configured({"in": 3, "log": 2}, subtopology("0", ["in"], changelogs=["log"]))
    assert result.problem == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic log has different number of partitions: expected 3, found 2",
    )


def test_counts_pass_through_a_chain_of_repartition_topics_in_any_order() -> None:
    result = configured(
        {"in": 5},
        subtopology("c", [], reads=[topic_info("second")], changelogs=["log"]),
        subtopology("b", [], reads=[topic_info("first")], writes=["second"]),
        subtopology("a", ["in"], writes=["first"]),
    )
    assert to_create(result) == {"first": 5, "second": 5, "log": 5}


def test_a_fixed_repartition_count_holds() -> None:
    result = configured(
        {"in": 5},
        subtopology("0", ["in"], writes=["fixed"]),
        subtopology("1", [], reads=[topic_info("fixed", 7)], changelogs=["log"]),
    )
    assert to_create(result) == {"fixed": 7, "log": 7}


def test_copartitioned_repartition_topics_follow_the_source() -> None:
    result = configured(
        {"left": 4, "right": 9},
        subtopology("0", ["right"], writes=["right-again"]),
        subtopology("1", ["left"], reads=[topic_info("right-again")], together=[([0], [0])]),
    )
    assert to_create(result) == {"right-again": 4}


def test_copartitioned_repartition_topics_agree_on_the_highest_count_or_on_the_fixed_one() -> None:
    def joined(fixed: int) -> dict[str, int]:
        return to_create(
            configured(
                {"left": 4, "right": 9},
                subtopology("0", ["left"], writes=["l"]),
                subtopology("1", ["right"], writes=["r"]),
                subtopology(
                    "2", [], reads=[topic_info("l", fixed), topic_info("r")], together=[([], [0, 1])]
                ),
            )
        )

    assert joined(0) == {"l": 9, "r": 9}
    assert joined(3) == {"l": 3, "r": 3}


@pytest.mark.parametrize(
    ("sources", "reads", "group"),
    [
        (["left", "right"], [], ([0, 1], [])),
        (["left"], [("l", 5)], ([0], [0])),
        ([], [("l", 5), ("r", 6)], ([], [0, 1])),
    ],
)
def test_topics_that_must_be_copartitioned_and_are_not(
    sources: list[str], reads: list[tuple[str, int]], group: tuple[list[int], list[int]]
) -> None:
    result = configured(
        {"left": 4, "right": 9},
        subtopology("0", ["left"], writes=["l", "r"]),
        subtopology("1", sources, reads=[topic_info(*one) for one in reads], together=[group]),
    )
    assert result.problem is not None
    assert result.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


@pytest.mark.parametrize(
    "broken",
    [
        [subtopology("0", [], reads=[topic_info("a")], writes=["a"])],
        [subtopology("0", ["in"], reads=[topic_info("nobody-writes")])],
        [subtopology("0", [], changelogs=["log"])],
    ],
)
def test_topologies_that_no_topics_can_make_work(broken: list[object]) -> None:
    with pytest.raises(ApiException) as refused:
        configured({"in": 1}, *broken)
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
