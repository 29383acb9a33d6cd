"""A clock of one node that is wrong: a preloaded library adds a shift to the time of day, which can change at any time.

Only the time of day is wrong. Time-outs run on the monotonic clock, which no administrator can set.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

from ottla.testing.chaos.preload import Preload, build

_SHIFT: Final = struct.Struct("=q")

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The file has one number: how many milliseconds the clock is ahead. */
static const volatile long long *shift;

__attribute__((constructor)) static void find(void) {
    const char *path = getenv("OTTLA_WRONG_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *place = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (place != MAP_FAILED) shift = place;
}

static long long ahead_ms(void) { return shift ? *shift : 0; }

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    long long ms = ahead_ms();
    if (failed || !ms || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
    now->tv_sec += ms / 1000;
    now->tv_nsec += ms % 1000 * 1000000;
    if (now->tv_nsec < 0) now->tv_sec--, now->tv_nsec += 1000000000;
    if (now->tv_nsec >= 1000000000) now->tv_sec++, now->tv_nsec -= 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
"""


class WrongClock:
    """The clock of one node. It keeps its shift when the node starts again."""

    def __init__(self, directory: Path, name: str) -> None:
        self._file = directory.resolve() / f"{name}.shift"
        self.preload = Preload(
            build(directory, "wrong-clock", _SOURCE), {"OTTLA_WRONG_CLOCK": str(self._file)}
        )
        self._file.write_bytes(_SHIFT.pack(0))

    def set(self, ahead_ms: int) -> None:
        """Let the clock be so many milliseconds ahead of the machine's from now on; less than 0 is behind."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), _SHIFT.size) as place:
            _SHIFT.pack_into(place, 0, ahead_ms)
