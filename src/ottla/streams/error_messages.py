"""Errors as one sentence for the user, without the pages of stack frames that Spark puts around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.client.errors import KafkaError
from ottla.streams.errors import StreamsError

_OUR_ERROR: Final = re.compile(r"ottla(?:\.\w+)*\.(?:errors|failures)\.\w+: ([^\n]+)")
_PYTHON_ERROR: Final = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt): .+)$", re.MULTILINE)
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")

_SPARK_ERRORS: Final = (
    (
        "CONCURRENT_STREAM_LOG_UPDATE",
        "another driver runs this application and has changed its state: stop one",
    ),
    ("UnknownTopicOrPartition", "a topic of the application does not exist any more"),
)


def describe(problem: BaseException) -> str:
    """One sentence for a failure: the last error of Ottla in it, else the last of Python, else Spark's first line."""
    text = str(problem)
    missing = _NO_MODULE.findall(text)
    if missing:
        return (
            f"the Python of Spark's workers has no module {missing[-1]}: install it there too, or put it beside the "
            f"application's file"
        )
    found = _OUR_ERROR.findall(text)
    if found:
        return str(found[-1])
    for name, meaning in _SPARK_ERRORS:
        if name in text:
            return meaning
    if "Traceback (most recent call last)" in text and (raised := _PYTHON_ERROR.findall(text)):
        return str(raised[-1])
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(problem).__name__


@contextmanager
def translate_client_errors() -> Iterator[None]:
    """Turns the errors of a Kafka client, such as an unreachable cluster, into StreamsErrors with the same text."""
    try:
        yield
    except KafkaError as problem:
        raise StreamsError(str(problem).removeprefix(f"{type(problem).__name__}: ")) from problem
