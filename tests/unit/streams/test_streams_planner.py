"""Where nodes run on Spark, and which changes of an application its checkpoint refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.streams import StreamsBuilder, TopologyError, tumbling
from ottla.streams.graph.topology import Topology
from ottla.streams.planner.foreign_key_replicas import resolved_tables, with_replicas
from ottla.streams.planner.manifest import CheckpointMismatch, Manifest
from ottla.streams.planner.plan import Plan, Strategy
from ottla.streams.planner.rows import Tasks, spark_hash
from ottla.streams.planner.stages import make_plan


def plan_of(b: StreamsBuilder) -> Plan:
    topology = b.build()
    return make_plan(with_replicas(topology, resolved_tables(topology)))


def names(plan: Plan) -> list[list[str]]:
    return [[node.name for node in stage.nodes] for stage in plan.stages]


def test_a_topology_without_state_is_one_stage() -> None:
    b = StreamsBuilder()
    b.stream("a").filter(lambda v: v).map_values(str.upper).to("b")
    plan = plan_of(b)
    assert len(plan.stages) == 1
    assert len(plan.stages[0].nodes) == 4


def test_what_leads_only_to_state_runs_beside_it() -> None:
    b = StreamsBuilder()
    b.stream("a").map_values(str.upper).group_by_key().count(store="c").to_stream().to("b")
    assert names(plan_of(b))[0] == []


def test_what_also_leads_elsewhere_runs_before() -> None:
    b = StreamsBuilder()
    upper = b.stream("a").map_values(str.upper, name="upper")
    upper.to("loud")
    upper.group_by_key().count(store="c").to_stream().to("b")
    plan = plan_of(b)
    assert plan.stage_of["upper"] == 0
    assert plan.stage_of["KSTREAM-AGGREGATE-0000000003"] == 1


def test_every_new_key_is_a_stage() -> None:
    b = StreamsBuilder()
    first = b.stream("a").group_by(lambda v: v).count(store="one").to_stream()
    first.group_by(lambda _, count: count).count(store="two").to_stream().to("b")
    plan = plan_of(b)
    assert [stage.stores for stage in plan.stages] == [[], ["one"], ["two"]]


def test_a_table_that_meets_a_late_stream_waits_for_it() -> None:
    b = StreamsBuilder()
    counts = b.stream("a").group_by(lambda v: v).count(store="counts")
    counts.join(b.table("names", store="names"), lambda x, y: (x, y)).to_stream().to("b")
    plan = plan_of(b)
    assert [stage.stores for stage in plan.stages] == [[], ["counts", "names"]]
    assert plan.joins_partitions == {"names"}


def test_a_foreign_key_join_goes_there_and_back() -> None:
    b = StreamsBuilder()
    orders, people = b.table("orders", value_serde="json"), b.table("people")
    orders.join(people, lambda o, p: (o, p), foreign_key=lambda o: o["who"]).to_stream().to("b")
    plan = plan_of(b)
    assert len(plan.stages) == 4
    assert not plan.stages[0].nodes


def test_sparks_hash_is_known() -> None:
    # SELECT hash(0), hash(1), hash(42), hash(-1)
    assert [spark_hash(value) for value in (0, 1, 42, -1)] == [933211791, -559580957, 29417773, -1604776387]


def manifest(b: StreamsBuilder, application: str = "app") -> Manifest:
    return Manifest.of(application, plan_of(b), Tasks.spread(4, 2))


def counting(store: str = "counts", *, shout: bool = False, window: bool = False) -> StreamsBuilder:
    b = StreamsBuilder()
    stream = b.stream("a")
    if shout:
        stream = stream.map_values(str.upper)
    grouped = stream.group_by(lambda v: v)
    table = grouped.windowed_by(tumbling(10)).count(store=store) if window else grouped.count(store=store)
    table.to_stream().to("b")
    return b


def test_a_change_without_state_keeps_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "app" / "plan.json"
    manifest(counting()).write(path)
    known = Manifest.read(path)
    assert known is not None
    known.check(manifest(counting(shout=True)))
    assert known.tasks == Tasks.spread(4, 2)


def test_a_checkpoint_from_before_buckets_is_kept_only_for_plain_counts(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plain = plan_of(counting())
    plain.strategy = Strategy.COUNTS
    Manifest.of("app", plain, Tasks.spread(4, 2)).write(path)
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    assert Manifest.read(path) is not None
    manifest(counting(window=True)).write(path)
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(CheckpointMismatch, match="another version of Ottla"):
        Manifest.read(path)


def test_a_store_may_be_added_where_there_are_some() -> None:
    more = counting()
    more.stream("c").group_by_key().count(store="more").to_stream().to("d")
    manifest(counting()).check(manifest(more))


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (counting(window=True), "counts was a key-value store and is a window store now"),
        (StreamsBuilder(), None),
    ],
)
def test_a_change_that_cannot_keep_state_is_refused(after: StreamsBuilder, reason: str | None) -> None:
    if reason is None:
        first = after.stream("a").group_by(lambda v: v).count(store="counts").to_stream()
        first.group_by(lambda _, count: count).count(store="again").to_stream().to("b")
        reason = "2 shuffles with state now, and had 1"
    with pytest.raises(CheckpointMismatch, match=reason):
        manifest(counting()).check(manifest(after))


def test_a_checkpoint_of_another_application_is_refused() -> None:
    with pytest.raises(CheckpointMismatch, match="belongs to app, not to other"):
        manifest(counting()).check(manifest(counting(), "other"))


def test_a_topic_that_is_no_longer_read_is_named() -> None:
    b = StreamsBuilder()
    b.stream("z").group_by(lambda v: v).count(store="counts").to_stream().to("b")
    with pytest.raises(CheckpointMismatch, match="a is no longer read"):
        manifest(counting()).check(manifest(b))


def test_pictures_of_a_topology_name_its_parts() -> None:
    from ottla.streams.graph.draw import mermaid, svg

    topology: Topology = counting().build()
    for picture in (mermaid(topology), svg(topology)):
        for part in ("KSTREAM-AGGREGATE", "counts", "counts-repartition"):
            assert part in picture
    assert svg(topology).startswith("<svg ")


def test_two_operators_of_one_name_are_refused() -> None:
    b = StreamsBuilder()
    b.stream("a").map_values(str.upper, name="twice")
    with pytest.raises(TopologyError, match="two operators are named twice"):
        b.stream("a").map_values(str.lower, name="twice")
