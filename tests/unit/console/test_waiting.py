"""What waits between the two steps of a change."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.console import waiting
from ottla.console.plans import Plan


async def nothing():
    return ""


def plan(rows, agreed):
    return Plan("Purge orders", "admin", "topic:orders", nothing, rows=rows, agreed=agreed)


def test_a_value_is_found_for_its_purpose_only_and_once():
    kept = waiting.Waiting[int]()
    handle = kept.put(7, "orders")
    assert kept.get(handle, "orders") == 7
    assert kept.get(handle, "clicks") is None
    assert kept.get("", "orders") is None
    kept.forget(handle)
    assert kept.get(handle, "orders") is None


def test_values_are_few_and_not_kept_for_long(monkeypatch):
    now = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(waiting, "time", now)
    kept = waiting.Waiting[int]()
    handles = [kept.put(number) for number in range(150)]
    assert kept.get(handles[0]) is None and kept.get(handles[149]) == 149
    now.monotonic = lambda: 100.0 + 601
    assert kept.get(handles[149]) is None


def test_what_is_agreed_to_counts_and_not_the_numbers_beside_it():
    assert plan([("0", "12.2 kB")], [5]).digest() == plan([("0", "12.3 kB")], [5]).digest()
    assert plan([("0", "12.2 kB")], [5]).digest() != plan([("0", "12.2 kB")], [6]).digest()
    assert plan([("0", "12.2 kB")], None).digest() != plan([("0", "12.3 kB")], None).digest()
