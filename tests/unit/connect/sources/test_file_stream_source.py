"""How often a file is looked at: often while it grows, once a second when nobody writes to it."""

from ottla.connect.sources.file_stream import FileStreamSource
from ottla.connect.spi import ReadLimit

LIMIT = ReadLimit(1000, 1 << 20)


def wait_of(reader):
    """How long the reader waits before its next look."""
    waits = []
    reader.wait(0.2, waits.append)
    return waits[0]


def test_a_file_that_rests_is_looked_at_once_a_second_until_it_grows(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\nhalf")
    reader = FileStreamSource({"file": str(path), "topic": "t"}).reader()
    start = reader.latest_offsets({}, LIMIT)
    assert start != {} and wait_of(reader) == 0.2
    for _ in range(30):
        assert reader.latest_offsets(start, LIMIT) == start
    assert wait_of(reader) == 1.0
    with path.open("a") as file:
        file.write(" line\n")
    end = reader.latest_offsets(start, LIMIT)
    assert end != start and wait_of(reader) == 0.2


def test_a_file_that_is_not_there_is_waited_for_in_the_same_way(tmp_path):
    path = tmp_path / "late.txt"
    reader = FileStreamSource({"file": str(path), "topic": "t"}).reader()
    for _ in range(30):
        assert reader.latest_offsets({}, LIMIT) == {}
    assert wait_of(reader) == 1.0
    path.write_text("one\n")
    assert reader.latest_offsets({}, LIMIT) != {} and wait_of(reader) == 0.2


def test_an_idle_file_that_was_replaced_by_a_shorter_one_is_read_from_its_start(tmp_path):
    path, other = tmp_path / "lines.txt", tmp_path / "new.txt"
    path.write_text("one\ntwo\n")
    reader = FileStreamSource({"file": str(path), "topic": "t"}).reader()
    start = reader.latest_offsets({}, LIMIT)
    assert reader.latest_offsets(start, LIMIT) == start
    other.write_text("x\n")
    other.replace(path)
    ((offset,),) = [list(one.values()) for one in reader.latest_offsets(start, LIMIT).values()]
    assert offset == 2
