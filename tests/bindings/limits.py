"""Limits of time in tests: none is a number of seconds of a fast machine (as tests/unit/support/machine_load.h for C++)."""
import time

HANG_S = 1800  # after so long only what hangs has not come: for waits that a test is not about


def machine_load():
    """How many times as long a piece of work takes as on a free core of 2023, at least 1: a slower processor counts, other programs on
    it, and a share of it that a container is given. What works needs so much longer, so tests multiply their limits by it."""
    begin, total = time.perf_counter(), 0
    for number in range(2_000_000):  # 0.2 s of an AMD Zen 4 at 3.7 GHz: longer than the tenth of a second over which shares are counted
        total += number * number
    return max(1.0, (time.perf_counter() - begin) / 0.2)
