"""Work that must not hold up the event loop: run in the thread pool, completed back on the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from ottla.errors import ApiException, ErrorCode

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Offload:
    """The way to the thread pool and back."""

    __slots__ = ("_executor", "_post")

    def __init__(self, executor: Executor, post: Callable[..., object] | None = None) -> None:
        self._executor = executor
        self._post = post
        """`loop.call_soon_threadsafe`; found on first use where none is given."""

    def run(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Run `work` in a thread, then `done` with its finished future on the event loop."""
        if self._post is None:
            self._post = asyncio.get_running_loop().call_soon_threadsafe
        post = self._post
        self._executor.submit(work).add_done_callback(lambda future: post(done, future))


def outcome(future: Future[T]) -> T | ApiException:
    """What came of the work: its result, or the error to tell. Whatever went wrong, someone waits for an answer."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, ApiException):
        return error
    if isinstance(error, OSError):
        return ApiException(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    _logger.error("Unexpected error in a thread", exc_info=error)
    return ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected {type(error).__name__}")
