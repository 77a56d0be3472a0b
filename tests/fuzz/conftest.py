"""How the fuzzers run: seeded, a second a test by default, an hour a file with `-m slow`, shared by its tests;
ANE_SWEEP_FUZZ_SECONDS sets the seconds of a test.

A fuzzer counts its tries and demands of each one: no traceback, no hang, no allocation beyond the limit. The number of a
try is its seed, so a failure is found again by the number that it names.
"""

import os
import random
import resource
import signal
import time

import pytest

SECONDS, HOUR = 1.0, 3600.0
FEWEST = 3  # tries, however slow the machine
HANG_S = 60.0  # a try that takes longer hangs
MEMORY_BYTES = 2 << 30  # what a try may add to what the process has mapped

LENGTHS = [
    pytest.param(SECONDS, id="briefly"),
    pytest.param(HOUR, id="an-hour", marks=[pytest.mark.slow, pytest.mark.timeout(2 * HOUR)]),
]


class Tries:
    """`for number, draw in tries:` gives seeded `random.Random`s until the time is spent, FEWEST at least."""

    def __init__(self, name: str, seconds: float):
        self.name, self.seconds, self.count = name, seconds, 0

    def __iter__(self):
        end = time.monotonic() + self.seconds
        while self.count < FEWEST or time.monotonic() < end:
            self.count += 1
            signal.setitimer(signal.ITIMER_REAL, HANG_S)
            try:
                yield self.count, random.Random(self.count)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture(params=LENGTHS)
def tries(request):
    """Tries under the limits of time and memory; says at the end how many there were."""
    name = request.node.name
    beside = [item for item in request.session.items if item.path == request.path and "tries" in item.fixturenames]
    seconds = SECONDS if request.param == SECONDS else request.param / max(1, len(beside))
    made = Tries(name, float(os.environ.get("ANE_SWEEP_FUZZ_SECONDS") or seconds))

    def hangs(*_):
        raise TimeoutError(f"{name}: try {made.count} took more than {HANG_S:g} s")

    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, hangs)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, before[1]))
    try:
        yield made
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
        print(f"{name}: {made.count} tries")
