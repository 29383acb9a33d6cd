"""The election of registries: who leads, and how a member leaves."""

from __future__ import annotations

import json

import pytest

from ottla.registry.leader import Elector, Identity, choose
from ottla.wire.codec import encode


def identity(host, **more):
    return json.dumps({"host": host, "port": 8081, "master_eligibility": True, **more}).encode()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_registry_that_stops_leaves_at_once(monkeypatch, version):
    # Once the request had a field that these versions do not have, and the group waited for the session's end.
    sent = []
    elector = Elector(None, "schema-registry", Identity("localhost", 8081), 10_000, lambda _: None)
    monkeypatch.setattr(elector, "_ask", lambda request: sent.append(encode(request, version)))
    elector._member = "me"
    elector._leave()
    assert b"me" in sent[0]


def test_the_incumbent_leads_else_the_first_by_address():
    members = {"m1": identity("b"), "m2": identity("a"), "m3": identity("c"), "m4": b"no identity"}
    assert choose(members, None) == ("m2", 0)
    assert choose(members, Identity("c", 8081)) == ("m3", 0)
    assert choose(members, Identity("gone", 8081)) == ("m2", 0)


def test_members_of_all_registries_say_in_two_ways_whether_they_may_lead():
    never = {"m1": identity("a", master_eligibility=False), "m2": identity("b")}
    assert choose(never, Identity("a", 8081)) == ("m2", 0)
    new = json.dumps({"host": "a", "port": 8081, "leader_eligibility": False}).encode()
    assert choose({"m1": new}, None) == (None, 0)
