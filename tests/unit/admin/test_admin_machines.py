"""Brokers by machine, as doctor, top and the console show them."""

from __future__ import annotations

from ottla.admin.machines import by_machine, is_shared, on_one_machine
from ottla.cli.tools.cluster_sample import Sample
from ottla.cli.tools.top import _lines

HOSTS = {1: "a.example", 1001: "a.example", 2: "b.example"}


def test_machines_are_in_the_order_of_their_brokers():
    assert by_machine(HOSTS) == {"a.example": [1, 1001], "b.example": [2]}
    assert is_shared(by_machine(HOSTS))
    assert not is_shared(by_machine({1: "a", 2: "b"}))


def test_replicas_on_one_machine_are_found_and_a_single_replica_is_not_meant():
    assert on_one_machine([1, 1001], HOSTS)
    assert not on_one_machine([1, 2], HOSTS)
    assert not on_one_machine([1], HOSTS)
    assert not on_one_machine([1, 77], HOSTS)


def test_top_adds_up_the_brokers_of_a_machine_only_where_some_share_one():
    before, now = (Sample(moment, ["x"] * 3, 1, hosts=dict(HOSTS)) for moment in (0.0, 1.0))
    shown = "\n".join(_lines(before, now))
    assert "3 brokers on 2 machines," in shown
    assert "a.example 1, 1001" in " ".join(shown.split())
    now.hosts = {1: "a", 2: "b", 3: "c"}
    assert "MACHINE" not in "\n".join(_lines(before, now))
