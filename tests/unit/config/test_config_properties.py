"""Java's properties format, as its own documentation describes it."""

import pytest

from ottla.config.errors import ConfigError
from ottla.config.properties import parse_properties


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
