"""What the demo sends, what it makes of it, and how it shows that."""

import io
import json
from collections import Counter

import pytest

from ottla.demo import generator, pipelines
from ottla.demo.results import MAX_WINDOWS, MAX_WORDS, Results
from ottla.demo.screen import ROWS, Screen, summary, table
from ottla.demo.topics import CLICKS, CLICKS_PER_WINDOW, LINES, WORD_COUNTS
from ottla.streams import TopologyTestDriver


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(written):
    """What a terminal shows after all this was written to it: `ESC [ n F` goes up, `ESC [ J` erases what is below."""
    lines = [""]
    for part in written.split("\x1b["):
        digits = part[: part.index("F")] if "F" in part and part[: part.index("F")].isdecimal() else ""
        if digits:
            part = part[len(digits) + 1 :]
            lines = [*lines[: len(lines) - 1 - int(digits)], ""]
        elif part.startswith("J"):
            part = part[1:]
        first, *rest = part.split("\n")
        lines[-1] += first
        lines += rest
    return lines[:-1]


def test_a_line_and_a_click_follow_from_the_seed_and_their_number():
    lines = [generator.line(7, number) for number in range(200)]
    assert lines == [generator.line(7, number) for number in range(200)]
    assert lines != [generator.line(8, number) for number in range(200)]
    assert {3, 4, 5, 6, 7, 8} == {len(line.split()) for line in lines}
    clicks = [generator.click(7, number) for number in range(200)]
    assert clicks == [generator.click(7, number) for number in range(200)]
    assert Counter(click.page for click in clicks).most_common(1)[0][0] == "/"


def test_words_are_counted():
    lines = [generator.line(1, number) for number in range(50)]
    with TopologyTestDriver(pipelines.word_count()) as driver:
        for line in lines:
            driver.pipe_input(LINES, line, timestamp=0)
        results = Results()
        while (record := driver.read_output(WORD_COUNTS)) is not None:
            results.take(WORD_COUNTS, record.key, json.dumps(record.value))
    assert results.words == Counter(word for line in lines for word in line.lower().split())


def test_clicks_are_counted_in_windows_of_ten_seconds():
    with TopologyTestDriver(pipelines.clicks_per_window()) as driver:
        for page, at_ms in (("/", 1_000), ("/help", 2_000), ("/", 9_999), ("/", 10_000)):
            driver.pipe_input(CLICKS, {"user": "user-1", "page": page}, timestamp=at_ms)
        results = Results()
        while (record := driver.read_output(CLICKS_PER_WINDOW)) is not None:
            results.take(CLICKS_PER_WINDOW, record.key, json.dumps(record.value))
    assert results.latest_clicks(10) == [
        ("1970-01-01T00:00:10Z", "/", 1),
        ("1970-01-01T00:00:00Z", "/", 2),
        ("1970-01-01T00:00:00Z", "/help", 1),
    ]


def test_results_stay_small_however_long_it_runs():
    results = Results()
    for number in range(MAX_WORDS + 10):
        results.take(WORD_COUNTS, f"word-{number}", "1")
    results.take(WORD_COUNTS, "word-0", "2")
    assert len(results.words) == MAX_WORDS
    assert results.words["word-0"] == 2
    for number in range(50):
        results.take(CLICKS_PER_WINDOW, pipelines.window_key("/", number * 10_000), "1")
    assert len(results.windows) == MAX_WINDOWS
    assert max(results.windows) == "1970-01-01T00:08:10Z"


@pytest.fixture
def results():
    found = Results()
    for word, count in (("river", 3), ("castle", 1204), ("lamp", 3)):
        found.take(WORD_COUNTS, word, str(count))
    for page, start, clicks in (("/", 0, 9), ("/", 10_000, 4), ("/help", 10_000, 5)):
        found.take(CLICKS_PER_WINDOW, pipelines.window_key(page, start), str(clicks))
    return found


def test_the_table(results):
    rows = table(results, lines=500, clicks=1000)
    assert rows[1:5] == [
        "  WORD              COUNT      WINDOW (UTC)          PAGE         CLICKS",
        "  castle            1,204      1970-01-01 00:00:10   /help             5",
        "  lamp                  3      1970-01-01 00:00:10   /                 4",
        "  river                 3      1970-01-01 00:00:00   /                 9",
    ]
    assert rows[-1] == "  500 lines and 1,000 clicks sent; 6 results read"
    assert len(rows) == len(table(Results(), lines=0, clicks=0)) == ROWS + 4


def test_the_line_for_logs(results):
    assert summary(results, lines=500, clicks=1000) == (
        "500 lines and 1,000 clicks sent; words: castle 1,204, lamp 3, river 3;"
        " clicks from 1970-01-01T00:00:10Z: /help 5, / 4"
    )
    assert summary(Results(), lines=1, clicks=2) == "1 lines and 2 clicks sent; words: none yet"


def test_a_terminal_shows_the_last_block_below_the_lines_that_stay():
    out = Terminal()
    screen = Screen(out)
    screen.say("ready")
    screen.draw(["one", "two", "three"])
    screen.draw(["four", "five"])
    screen.say("a warning")
    assert shown(out.getvalue()) == ["ready", "a warning", "four", "five"]
    screen.draw(["x" * 500])
    assert len(shown(out.getvalue())[-1]) < 500
    screen.draw(["six"])
    screen.keep()
    screen.say("stopped")
    assert shown(out.getvalue()) == ["ready", "a warning", "six", "stopped"]


def test_a_file_gets_lines_only():
    out = io.StringIO()
    screen = Screen(out)
    screen.say("ready")
    screen.draw(["one", "two"])
    screen.say("stopped")
    assert out.getvalue() == "ready\nstopped\n"
