"""What a failure means, as one sentence: without Spark's pages of frames around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.streams.errors import StreamsError

_OUR_WORDS: Final = re.compile(r"ottla(?:\.\w+)*\.(?:errors|failures)\.\w+: ([^\n]+)")
_PYTHONS_WORDS: Final = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt): .+)$", re.MULTILINE)
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")

_SPARKS_WORDS: Final = (
    ("CONCURRENT_STREAM_LOG_UPDATE", "another driver runs this application, and has gone on with its state"),
    ("UnknownTopicOrPartition", "a topic of the application is gone"),
)


def describe(problem: BaseException) -> str:
    """The last of our own words in it, else of Python's, else the first of Spark's."""
    text = str(problem)
    missing = _NO_MODULE.findall(text)
    if missing:
        return (
            f"the Python of Spark's workers has no module {missing[-1]}: install it there too, or put it beside the "
            f"application's file"
        )
    found = _OUR_WORDS.findall(text)
    if found:
        return str(found[-1])
    for words, meaning in _SPARKS_WORDS:
        if words in text:
            return meaning
    if "Traceback (most recent call last)" in text and (told := _PYTHONS_WORDS.findall(text)):
        return str(told[-1])
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(problem).__name__


@contextmanager
def translate_client_errors() -> Iterator[None]:
    """A cluster that cannot be reached, or refuses, is told in its client's words."""
    from ottla.client.errors import KafkaError

    try:
        yield
    except KafkaError as problem:
        raise StreamsError(str(problem).removeprefix(f"{type(problem).__name__}: ")) from problem
