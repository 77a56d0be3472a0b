"""what it costs to note when each chunk of a prediction begins and ends: CPU of the readings alone, for 12 chunks"""

import time

from tests.bench import Row

CHUNKS, ROUNDS, TURNS = 12, 20_000, 5


def run() -> list[Row]:
    """The loop of a chain with nothing in its calls, with and without its marks; the median of five differences."""

    def loop(marks: list[float] | None) -> float:
        clock, start = time.perf_counter, time.process_time()
        for _ in range(ROUNDS * CHUNKS):
            for _ in range(2):
                if marks is not None:
                    marks.append(clock())
        return time.process_time() - start

    spent = sorted(loop([]) - loop(None) for _ in range(TURNS))[TURNS // 2] / ROUNDS
    return [
        Row("marks of one prediction of 12 chunks", f"{1e6 * spent:.1f} us", bar="under 0.1 % of 20 ms"),
        Row("of it a chunk", f"{1e9 * spent / CHUNKS:.0f} ns"),
    ]
