"""A disk that fails with EIO, or takes long: a preloaded library in the process of one node does it on demand.

Only operations on files in the node's own directory are affected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.testing.chaos.preload import Preload, build

OPERATIONS: Final = {"writes": "w", "syncs": "s", "reads": "r", "everything": "wsr"}
SLOW_OPERATIONS: Final = {"syncs": "S", "syncs and writes": "SW", "everything": "SWR"}
"""A slow sync takes a second, anything else that is slow 20 ms."""

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The orders file lists the operations that fail now: letters of w, s and r; W, S and R are those that take long.
   It is missing while nothing fails. */
static int broken(int fd, char operation) {
    const char *orders = getenv("OTTLA_BROKEN_DISK_ORDERS"), *place = getenv("OTTLA_BROKEN_DISK_PLACE");
    char what[8] = "", link[64], path[PATH_MAX + 1];
    if (!orders || !place) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, orders, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    long size = syscall(SYS_read, file, what, sizeof what - 1);
    syscall(SYS_close, file);
    char slow = operation - 'a' + 'A';
    if (size <= 0 || (!strchr(what, operation) && !strchr(what, slow))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, place, strlen(place))) return 0;
    if (strchr(what, slow)) {
        usleep(operation == 's' ? 1000000 : 20000);
        return 0;
    }
    errno = EIO;
    return 1;
}

#define IN_FRONT_OF(result, name, operation, parameters, arguments)          \
    result name parameters {                                                 \
        static result(*real) parameters;                                     \
        int before = errno;                                                  \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);                \
        if (broken(fd, operation)) return -1;                                \
        errno = before;                                                      \
        return real arguments;                                               \
    }

IN_FRONT_OF(ssize_t, write, 'w', (int fd, const void *data, size_t size), (fd, data, size))
IN_FRONT_OF(ssize_t, writev, 'w', (int fd, const struct iovec *data, int count), (fd, data, count))
IN_FRONT_OF(int, fsync, 's', (int fd), (fd))
IN_FRONT_OF(int, fdatasync, 's', (int fd), (fd))
IN_FRONT_OF(ssize_t, pread64, 'r', (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
IN_FRONT_OF(ssize_t, preadv64v2, 'r', (int fd, const struct iovec *data, int count, off64_t at, int flags),
            (fd, data, count, at, flags))
"""


class BrokenDisk:
    """The disk of one node. Between `fail` or `slow` and `mend` its files fail, or take long."""

    def __init__(self, directory: Path, data: Path) -> None:
        self._orders = directory.resolve() / "broken-disk.orders"
        self.preload = Preload(
            build(directory, "broken-disk", _SOURCE),
            {
                "OTTLA_BROKEN_DISK_ORDERS": str(self._orders),
                "OTTLA_BROKEN_DISK_PLACE": f"{data.resolve()}/",
            },
        )

    def fail(self, what: str) -> None:
        """`what` is one of `OPERATIONS`."""
        self._order(OPERATIONS[what])

    def slow(self, what: str) -> None:
        """`what` is one of `SLOW_OPERATIONS`."""
        self._order(SLOW_OPERATIONS[what])

    def _order(self, letters: str) -> None:
        whole = self._orders.with_suffix(".new")
        whole.write_text(letters)
        whole.rename(self._orders)

    def mend(self) -> None:
        self._orders.unlink(missing_ok=True)
