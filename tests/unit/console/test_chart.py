"""Charts: what they draw, and what they say before there is anything to draw."""

from ottla.console.draw.chart import time_chart


def test_two_points_make_a_line_and_a_table() -> None:
    drawn = time_chart([("orders", [1.0, 3.0])], "Records per second", str)
    assert drawn.count('<path class="line s0"') == 2  # the line, and its key in the legend
    assert "orders 3.0 now" in drawn
    assert "<th scope=row>" in drawn


def test_a_single_point_is_no_line_but_a_sentence() -> None:
    drawn = time_chart([("orders", [1.0])], "Records per second, a day", str, step_s=300.0)
    assert "<svg" not in drawn
    assert "orders 1.0 now; nothing to draw yet: a point is added every 5 min" in drawn
    assert "a point is added every 2\u00a0s" in time_chart([], "Records per second", str)
