"""The sticky task assignor: even, sticky, standbys elsewhere."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.streams.assignor import MemberSpec, StickyTaskAssignor
from ottla.coordinator.group.streams.configure import ConfiguredSubtopology
from ottla.coordinator.group.streams.tasks import NO_TASKS, TaskId, Tasks
from ottla.coordinator.group.streams.topology import parse_topology
from unit.coordinator.group.streams.streams_rig import subtopology, topology


def stateful(**tasks: int) -> dict[str, ConfiguredSubtopology]:
    """Subtopologies with state, by their number of tasks."""
    found = {}
    for id_, count in tasks.items():
        one = parse_topology(topology(subtopology(id_, ["in"], changelogs=["log"]))).subtopologies[id_]
        found[id_] = ConfiguredSubtopology(one, count, (), one.state_changelog_topics)
    return found


def assign(
    subtopologies: dict[str, ConfiguredSubtopology],
    processes: dict[str, str],
    before: dict[str, Tasks] | None = None,
    standbys: int = 0,
) -> dict[str, Tasks]:
    members = {
        id_: MemberSpec(process, (before or {}).get(id_, NO_TASKS)) for id_, process in processes.items()
    }
    return StickyTaskAssignor(members, subtopologies, standbys).assign()


def test_tasks_are_spread_evenly_over_processes_and_their_threads() -> None:
    targets = assign(stateful(a=6), {"m1": "p1", "m2": "p1", "m3": "p2"})
    assert sorted(len(target.active) for target in targets.values()) == [2, 2, 2]


def test_a_new_member_takes_only_its_share() -> None:
    before = assign(stateful(a=6), {"m1": "p1", "m2": "p2"})
    after = assign(stateful(a=6), {"m1": "p1", "m2": "p2", "m3": "p3"}, before)
    assert [len(after[id_].active) for id_ in ("m1", "m2", "m3")] == [2, 2, 2]
    assert after["m1"].active < before["m1"].active
    assert after["m2"].active < before["m2"].active


def test_the_tasks_of_a_lost_member_go_to_its_standbys() -> None:
    processes = {"m1": "p1", "m2": "p2", "m3": "p3"}
    before = assign(stateful(a=3), processes, standbys=2)
    assert all(len(target.standby) == 2 for target in before.values())
    del processes["m3"]
    after = assign(stateful(a=3), processes, before, standbys=1)
    for id_, target in after.items():
        moved = target.active - before[id_].active
        assert moved <= before[id_].standby


def test_stateless_subtopologies_have_no_standbys() -> None:
    both = stateful(a=2)
    one = parse_topology(topology(subtopology("b", ["in"]))).subtopologies["b"]
    both["b"] = ConfiguredSubtopology(one, 2, (), ())
    targets = assign(both, {"m1": "p1", "m2": "p2"}, standbys=1)
    standby = {task for target in targets.values() for task in target.standby}
    assert standby == {TaskId("a", 0), TaskId("a", 1)}


def test_a_single_process_has_no_place_for_standbys() -> None:
    targets = assign(stateful(a=2), {"m1": "p1", "m2": "p1"}, standbys=1)
    assert not any(target.standby for target in targets.values())


members = st.dictionaries(
    st.sampled_from([f"m{i}" for i in range(8)]), st.sampled_from(["p1", "p2", "p3", "p4"]), min_size=1
)
counts = st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1)


@given(counts, st.lists(members, min_size=1, max_size=5), st.integers(0, 2))
def test_every_task_once_and_its_standbys_in_other_processes(
    tasks: dict[str, int], rounds: list[dict[str, str]], standbys: int
) -> None:
    subtopologies = stateful(**dict(sorted(tasks.items())))
    wanted = {TaskId(id_, index) for id_, count in tasks.items() for index in range(count)}
    targets: dict[str, Tasks] = {}
    for processes in rounds:
        targets = assign(subtopologies, processes, targets, standbys)
        active = Counter(task for target in targets.values() for task in target.active)
        assert active == Counter(wanted)
        copies: Counter[tuple[str, TaskId]] = Counter()
        for id_, target in targets.items():
            copies.update((processes[id_], task) for task in target.active | target.standby)
        assert max(copies.values()) == 1
        spare = min(standbys, len(set(processes.values())) - 1)
        replicas = Counter(task for target in targets.values() for task in target.standby)
        assert replicas == Counter(dict.fromkeys(wanted, spare)) if spare else not replicas
