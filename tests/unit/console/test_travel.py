"""Replay's words, differences of clusters, and what a sample of records says."""

from __future__ import annotations

import pytest

from ottla.console.pages.replay import next_name, verdict
from ottla.console.snapshot import check, differences


@pytest.mark.parametrize(
    ("name", "following"), [("billing", "billing-v2"), ("billing-v2", "billing-v3"), ("a-v9-v10", "a-v9-v11")]
)
def test_the_next_version_has_the_next_name(name, following):
    assert next_name(name) == following


@pytest.mark.parametrize(
    ("numbers", "tone"),
    [((10, 500, 0, 0.0), "warn"), ((10, 10, 1, 5.0), "ok"), ((10, 610, 1, 10.0), "info")],
)
def test_a_replay_in_words(numbers, tone):
    assert verdict(*numbers)[0] == tone


def cluster(**topics):
    return {"format": 1, "topics": topics, "groups": {}, "acls": None, "schemas": None}


def topic(partitions, **settings):
    return {"partitions": partitions, "replication": 1, "settings": settings}


def test_differences_come_with_the_command_that_ends_them():
    here = cluster(orders=topic(1, a="1"), gone=topic(1))
    there = cluster(orders=topic(3, b="x y"), fresh=topic(2))
    found = {(each.name, each.what): each.command for each in differences(here, there, "b:1")}
    assert found == {
        ("fresh", "topic"): "ottla topics --bootstrap-server b:1 --create --topic fresh --partitions 2"
        " --replication-factor 1",
        ("gone", "topic"): "ottla topics --bootstrap-server b:1 --delete --topic gone",
        ("orders", "partitions"): "ottla topics --bootstrap-server b:1 --alter --topic orders --partitions 3",
        ("orders", "a"): "ottla configs --bootstrap-server b:1 --alter --topic orders --delete-config a",
        ("orders", "b"): "ottla configs --bootstrap-server b:1 --alter --topic orders --add-config 'b=x y'",
    }
    assert differences(here, here, "b:1") == []


def test_a_name_from_a_file_cannot_leave_its_command():
    there = cluster(**{"x; rm -rf /": topic(1)})
    (found,) = differences(cluster(), there, "b:1")
    assert "--topic 'x; rm -rf /'" in found.command


def test_fewer_partitions_and_other_replication_have_no_command():
    here, there = cluster(t=topic(3)), cluster(t={**topic(1), "replication": 2})
    assert [(each.what, each.command) for each in differences(here, there, "b:1")] == [
        ("partitions", ""),
        ("replication", ""),
    ]


@pytest.mark.parametrize("document", [[], {}, {"format": 1}, {"format": 1, "topics": [], "groups": "x"}])
def test_a_damaged_snapshot_is_refused(document):
    with pytest.raises(ValueError, match="snapshot"):
        check(document)
