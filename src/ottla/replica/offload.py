"""Work that must not block the event loop: it runs in the thread pool and completes on the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from ottla.errors import ApiException, ErrorCode

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Offloader:
    """Runs work in the thread pool; `post` (`loop.call_soon_threadsafe`) brings its result back."""

    __slots__ = ("_executor", "_post")

    def __init__(self, executor: Executor, post: Callable[..., object]) -> None:
        self._executor = executor
        self._post = post

    def run(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Run `work` in a thread, then `done` with its finished future on the event loop."""
        post = self._post
        self._executor.submit(work).add_done_callback(lambda future: post(done, future))


def outcome(future: Future[T]) -> T | ApiException:
    """The result of the work, or the error for the client that waits, whatever went wrong."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, ApiException):
        return error
    if isinstance(error, OSError):
        return ApiException(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    _logger.error("Unexpected error in a thread", exc_info=error)
    return ApiException(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected {type(error).__name__}")
