"""A disk that fails with EIO: a preloaded library in the process of one node makes file operations fail on demand.

The machine's C compiler builds it; `usable()` returns whether there is one. Only operations on files in the node's
own directory fail.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

OPERATIONS: Final = {"writes": "w", "syncs": "s", "reads": "r", "everything": "wsr"}

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

/* The orders file lists the operations that fail now: letters of w, s and r. It is missing while nothing fails. */
static int broken(int fd, char operation) {
    const char *orders = getenv("OTTLA_BROKEN_DISK_ORDERS"), *place = getenv("OTTLA_BROKEN_DISK_PLACE");
    char what[8] = "", link[64], path[PATH_MAX + 1];
    if (!orders || !place) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, orders, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    long size = syscall(SYS_read, file, what, sizeof what - 1);
    syscall(SYS_close, file);
    if (size <= 0 || !strchr(what, operation)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, place, strlen(place))) return 0;
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
    """The disk of one node. `launcher` goes before its command. Between `fail` and `mend` its files fail."""

    def __init__(self, directory: Path, data: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._orders = directory.resolve() / "broken-disk.orders"
        self._library = directory.resolve() / "broken-disk.so"
        self._place = data.resolve()
        source = directory / "broken-disk.c"
        source.write_text(_SOURCE)
        words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(words, check=True, capture_output=True)

    @property
    def launcher(self) -> Sequence[str]:
        return [
            "env",
            f"LD_PRELOAD={self._library}",
            f"OTTLA_BROKEN_DISK_ORDERS={self._orders}",
            f"OTTLA_BROKEN_DISK_PLACE={self._place}/",
        ]

    def fail(self, what: str) -> None:
        """`what` is one of `OPERATIONS`."""
        whole = self._orders.with_suffix(".new")
        whole.write_text(OPERATIONS[what])
        whole.rename(self._orders)

    def mend(self) -> None:
        self._orders.unlink(missing_ok=True)


def usable() -> bool:
    return sys.platform == "linux" and shutil.which("cc") is not None
