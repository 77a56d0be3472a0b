"""Steps that need a fresh process of their own inside one task: loads and compute plans, which compile for the ANE.

Such a compilation can take hours, 10 GB (in ANECompilerService, a process of the system, not in ours) or the process
itself. So each step is a child of the worker; what kills it ends this task, with the step's name in the reason. Its
memory and that of the helpers is looked at once a second, until the child says that it begins to time short things
(`quiet`). Time is limited by the task's own limit.

    child    python -m ane_sweep.worker.coreml.steps REQUEST_JSON     {"stage", "step", "result", ...}
             calls  stages/<stage>.py: <step>(request) -> plain JSON values
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from ane_sweep.bridge import autopsy, disk
from ane_sweep.bridge.protocol import MEMORY_VARIABLE, PARENT_VARIABLE
from ane_sweep.bridge.task import Limits, TaskRequest
from ane_sweep.errors import Died, StageError, Unavailable
from ane_sweep.machine import helpers, processes, stand_in
from ane_sweep.worker.child import describe_error, die_with_parent, explain_death

_LOOK_S = 1.0


def run_step(stage: str, step: str, what: str, env: dict[str, str] | None = None, **request: Any) -> dict[str, Any]:
    """Run one step; returns its values, with `stderr` (what native code said) and `helpers` (peaks by name, bytes).

    Raises errors.Died when the process was killed, or went over the memory limit; Unavailable and StageError for what
    it raised itself.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{step}-"))
    asked = {**request, "stage": stage, "step": step, "result": str(folder / "result.json"), "quiet": str(folder / "q")}
    (folder / "request.json").write_text(json.dumps(asked), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "ane_sweep.worker.coreml.steps", str(folder / "request.json")]
    more = {PARENT_VARIABLE: str(os.getpid()), **(env or {})}
    with open(folder / "stderr.txt", "wb") as stderr:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stderr, stderr=stderr, env={**os.environ, **more}
        )
        peaks, over = _watch(child, folder / "q")
    said = autopsy.read_tail(folder / "stderr.txt")
    sys.stderr.write(said)  # into the task's own stderr.txt
    result = disk.read_json(folder / "result.json")
    disk.remove_tree(folder)
    if over:
        raise Died("out_of_memory", f"{what} went over the memory limit ({over}) and was ended")
    if result is None:
        raise _explain_death(what, child.returncode, said)
    if "out_of_memory" in result:
        raise Died("out_of_memory", f"{what} was refused memory: {result['out_of_memory']}")
    if "unavailable" in result:
        raise Unavailable(result["unavailable"])
    if "failed" in result:
        raise StageError(f"{what}: {result['failed']}")
    return {**result, "stderr": said, "helpers": peaks}


def stop_watching(request: dict[str, Any]) -> None:
    """Called by a step before it times short things: nobody looks at it from here on."""
    Path(request["quiet"]).touch()


def _watch(child: subprocess.Popen, quiet_file: Path) -> tuple[dict[str, int], str | None]:
    """Until the child has ended: (largest resident size of each helper, what went over the limit if anything did)."""
    limit = _read_limit()
    before = helpers.sizes()
    peaks = dict(before)
    with processes.ProcessExit(child.pid) as gone:
        while not gone.wait(_LOOK_S):
            if quiet_file.exists():
                gone.wait(None)
                break
            for name, size in helpers.sizes().items():
                peaks[name] = max(size, peaks.get(name, 0))
            grown = sum(max(0, size - before.get(name, 0)) for name, size in peaks.items())
            used = processes.tree_bytes(child.pid)
            if limit and used + grown > limit:
                child.kill()
                child.wait()
                return peaks, f"{used / 2**30:.1f} GiB, and {grown / 2**30:.1f} GiB more in Apple's compiler service"
    child.wait()
    return peaks, None


def _read_limit() -> int | None:
    return int(os.environ.get(MEMORY_VARIABLE) or 0) or None


def _explain_death(what: str, code: int | None, said: str) -> Died:
    nowhere = Path()
    asked = TaskRequest(what, "", {"runtime": "coreml"}, {}, nowhere, nowhere, Limits(_read_limit()))
    status, reason = autopsy.cause_of_death(asked, None, code, said, ran_out=False, timeout_s=None)
    return Died(status, reason)


def main(path: str) -> None:
    """The child."""
    die_with_parent(int(os.environ[PARENT_VARIABLE]))
    explain_death()
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    if script := stand_in.active():
        from ane_sweep.coreml_anywhere import scripted_remote

        scripted_remote.install(script)
    began = time.perf_counter()
    try:
        found = getattr(importlib.import_module(f"ane_sweep.worker.stages.{request['stage']}"), request["step"])(
            request
        )
        found = {**found, "seconds": time.perf_counter() - began}
    except MemoryError as error:
        found = {"out_of_memory": describe_error(error)}
    except Unavailable as error:
        found = {"unavailable": str(error)}
    except Exception as error:
        traceback.print_exc()
        found = {"failed": str(error) if isinstance(error, StageError) else describe_error(error)}
    disk.write_json(Path(request["result"]), found)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
