"""The audit log says where somebody read, never what they looked for."""

from __future__ import annotations

import json

from ottla.console.security.audit import Audit, reading


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
