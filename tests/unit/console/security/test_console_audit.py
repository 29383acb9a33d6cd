"""The audit log says where somebody read, never what they looked for."""

from __future__ import annotations

import json

from ottla.console.security.audit import Audit, newest, reading


def test_a_text_that_was_searched_for_stays_out(tmp_path):
    query = {
        "q": "DE0012345",
        "filter": 'value.iban == "DE00"',
        "at": "time",
        "since": "2h",
        "cursor": "0:17",
    }
    log = Audit(tmp_path / "audit.jsonl")
    log.note("ann", "read records", "local", "topic:orders", query=reading(query))
    log.close()
    (line,) = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert line["query"] == {"at": "time", "since": "2h", "cursor": "0:17", "by": "text and condition"}


def test_the_newest_lines_come_first_and_a_cut_one_is_passed_over(tmp_path, monkeypatch):
    path = tmp_path / "audit.jsonl"
    log = Audit(path)
    for number in range(10):
        log.note("ann", f"change {number}", "local" if number % 2 else "other", "cluster")
    log.close()
    found = newest(path, lambda line: line["cluster"] == "local", 3)
    assert [line["what"] for line in found] == ["change 9", "change 7", "change 5"]
    monkeypatch.setattr("ottla.console.security.audit._LOOKED_AT", len(path.read_bytes()) // 10 + 5)
    assert [line["what"] for line in newest(path, lambda _: True, 99)] == ["change 9"]
