"""2,000 tiny tasks over four workers of a fleet on loopback against one: seconds, and what the fleet itself costs a task"""

import os
import tempfile
import time
from pathlib import Path

from ane_sweep.fleet import link
from tests.bench import Row, _shelf

TASKS = 2000
SLEEPS_S = (
    0.02  # what a task waits, as one does for its child: it takes no core, so what is left over is the fleet's own
)


def nap(text: str) -> str:
    """A task that does nothing but wait. Called by its name; text in, text out, as an errand."""
    time.sleep(SLEEPS_S)
    return text


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ane-sweep-fleet-") as folder, _shelf.Shelf(Path(folder)) as shelf:
        names = list(_shelf.WORKERS)
        shelf.worker(names[0], _shelf.WORKERS[names[0]])
        shelf.ready(names[0])
        one = _seconds(shelf)
        for name in names[1:]:
            shelf.worker(name, _shelf.WORKERS[name])
        shelf.ready(*names)
        four = _seconds(shelf)
    here = f"{os.cpu_count()} cores for all of it"
    took = (f"{four:.1f} s (4 workers)", f"{one:.1f} s (1 worker)", f"{one / four:.2f}")
    own = (f"{_own_ms(four, 4):.2f} ms (4 workers)", f"{_own_ms(one, 1):.2f} ms (1 worker)")
    return [
        Row(f"{TASKS} tasks that wait {SLEEPS_S * 1e3:g} ms", *took, bar=here),
        Row("of that, the fleet's own a task", *own),
    ]


def _own_ms(took: float, workers: int) -> float:
    return (took - TASKS * SLEEPS_S / workers) / TASKS * 1e3


def _seconds(shelf: _shelf.Shelf) -> float:
    """From the first submit to the last answer, each task a future with the resources of a preparation."""
    with link.connected(shelf.address, shelf.certificates) as client:
        client.gather([client.submit(nap, "warm", resources={"PREP": 1}, pure=False) for _ in range(20)])
        began = time.perf_counter()
        futures = [
            client.submit(nap, str(number), resources={"PREP": 1}, priority=-number, retries=0, pure=False)
            for number in range(TASKS)
        ]
        assert client.gather(futures) == [str(number) for number in range(TASKS)]
        return time.perf_counter() - began
