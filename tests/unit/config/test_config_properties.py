"""Java's properties format, as its own documentation describes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.errors import ConfigError
from ottla.config.properties import format_properties, parse_properties


def test_comments_blank_lines_and_separators():
    text = "# a comment\n\n  ! another\nplain=1\n spaced = 2 \ncolon:3\nblank 4\nempty=\nlonely\n"
    assert parse_properties(text) == {
        "plain": "1",
        "spaced": "2 ",
        "colon": "3",
        "blank": "4",
        "empty": "",
        "lonely": "",
    }


def test_of_a_key_given_twice_the_last_wins():
    assert parse_properties("a=1\na=2\n") == {"a": "2"}


def test_a_line_goes_on_after_a_backslash():
    assert parse_properties("list=a,\\\n    b,\\\r\n  c\nnext=d") == {"list": "a,b,c", "next": "d"}


def test_an_even_number_of_backslashes_ends_the_line():
    assert parse_properties("path=C:\\\\\nnext=1") == {"path": "C:\\", "next": "1"}


def test_escapes():
    assert parse_properties(r"a\ b\=c=\tx\u00e9\q") == {"a b=c": "\txéq"}


def test_a_malformed_unicode_escape_is_refused():
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        parse_properties(r"a=\u12")


def test_colons_are_escaped_as_java_writes_them():
    assert format_properties({"a": "b:c=d #e"}, ("note",)) == "#note\na=b\\:c\\=d \\#e\n"


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=5))
def test_what_is_written_is_read_back(values):
    assert parse_properties(format_properties(values)) == values
