"""Charts: what they draw, and what they say before there is anything to draw; the keys of pages."""

import re

from ottla.console import pages
from ottla.console.draw.chart import time_chart
from ottla.console.frame import AREAS


def test_two_points_make_a_line_and_a_table() -> None:
    drawn = time_chart([("orders", [1.0, 3.0])], "Records per second", str)
    assert drawn.count('<path class="line s0"') == 2  # the line, and its key in the legend
    assert "orders 3.0 now" in drawn
    assert "<th scope=row>" in drawn


def test_the_axis_begins_at_the_first_point_and_a_week_has_its_days() -> None:
    assert ">4 s ago<" in time_chart([("orders", [1.0, 3.0, 2.0])], "Records per second", str)
    week = time_chart([("lag", [1.0] * 169)], "Lag, a week", str, step_s=3600.0)
    assert ">7 days ago<" in week
    assert re.search(r"<th scope=row>\d{4}-\d\d-\d\d \d\d:\d\d</th>", week)


def test_a_single_point_is_no_line_but_a_sentence() -> None:
    drawn = time_chart([("orders", [1.0])], "Records per second, a day", str, step_s=300.0)
    assert "<svg" not in drawn
    assert "orders 1.0 now; nothing to draw yet: a point is added every 5 min" in drawn
    assert "a point is added every 2\u00a0s" in time_chart([], "Records per second", str)


def test_no_two_pages_have_the_same_key() -> None:
    pages.load()
    keys = [area.key for area in AREAS if area.key] + ["o", "t", "g", "n", "q"]
    assert len(set(keys)) == len(keys)
