"""Steps of a task that need a fresh process: loads and compute plans, which compile for the ANE.

Such a compilation can take hours, 10 GB (in ANECompilerService, a system process, not in ours) or kill the process. So
each step is a child of the worker; its death ends this task, with the step's name in the reason. Its memory and that of
Apple's services is read once a second until the child begins to time short calls (`stop_watching`). The task's own
limit limits the time.

    child    python -m ane_sweep.worker.programs.mlprogram.steps REQUEST_JSON     {"module", "step", "result", ...}
             calls  <module>: <step>(request) -> plain JSON values
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

from ane_sweep.bridge import autopsy, disk
from ane_sweep.bridge.protocol import MEMORY_VARIABLE, PARENT_VARIABLE
from ane_sweep.bridge.task import Limits, TaskRequest
from ane_sweep.errors import Died, StageError, Unavailable
from ane_sweep.machine import processes, services, stand_in
from ane_sweep.worker.child import describe_error, die_with_parent, explain_death

_LOOK_S = 1.0
HOME_VARIABLE = "CFFIXED_USER_HOME"  # Core Foundation takes it for the home folder


def run_with_own_cache(module: str, step: str, label: str, home: Path, **request: object) -> dict[str, object]:
    """Run a step with its caches in `home`; if that fails, with the user's own caches, and the reason in `own_cache`.

    Raises the errors of the second attempt; Died and Unavailable at once, because a second attempt would end the same way.
    """
    request["home"] = str(home)
    try:
        return {**run_step(module, step, label, {HOME_VARIABLE: str(home)}, **request), "own_cache": None}
    except (Died, Unavailable):
        raise
    except StageError as error:
        return {**run_step(module, step, label, None, **request), "own_cache": str(error)}


def run_step(
    module: str, step: str, label: str, env: dict[str, str] | None = None, **values: object
) -> dict[str, object]:
    """Run one step; return its values, with `stderr` (messages of native code) and `helpers` (peaks by name, bytes).

    Raises errors.Died if the process was killed or exceeded the memory limit, and Unavailable or StageError if the step
    raised them.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{step}-"))
    files = {"result": str(folder / "result.json"), "quiet": str(folder / "q")}
    request = {**values, "module": module, "step": step, **files}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "ane_sweep.worker.programs.mlprogram.steps", str(folder / "request.json")]
    more = {PARENT_VARIABLE: str(os.getpid()), **(env or {})}
    with open(folder / "stderr.txt", "wb") as stderr:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stderr, stderr=stderr, env={**os.environ, **more}
        )
        peaks, over = _watch(child, folder / "q")
    stderr_tail = autopsy.read_tail(folder / "stderr.txt")
    sys.stderr.write(stderr_tail)  # into the task's own stderr.txt
    result = disk.read_json(folder / "result.json")
    disk.remove_tree(folder)
    if over:
        raise Died("out_of_memory", f"{label} went over the memory limit ({over}) and was ended")
    if result is None:
        nowhere = Path()
        task = TaskRequest(label, "", {"runtime": "coreml"}, {}, nowhere, nowhere, Limits(_read_limit()))
        cause = autopsy.cause_of_death(task, None, child.returncode, stderr_tail, ran_out=False, timeout_s=None)
        raise Died(*cause)
    if "out_of_memory" in result:
        raise Died("out_of_memory", f"{label} was refused memory: {result['out_of_memory']}")
    if "unavailable" in result:
        raise Unavailable(result["unavailable"])
    if "failed" in result:
        raise StageError(f"{label}: {result['failed']}")
    return {**result, "stderr": stderr_tail, "helpers": peaks}


def stop_watching(request: dict[str, object]) -> None:
    """Stop the watching of this step's memory; a step calls it before it times short calls."""
    Path(str(request["quiet"])).touch()


def _watch(child: subprocess.Popen[bytes], quiet_file: Path) -> tuple[dict[str, int], str | None]:
    """Wait for the child. Return the largest resident size of each service, and the process that exceeded the limit, or None."""
    limit = _read_limit()
    before = services.sizes()
    peaks = dict(before)
    with processes.ProcessExit(child.pid) as gone:
        while not gone.wait(_LOOK_S):
            if quiet_file.exists():
                gone.wait(None)
                break
            for name, size in services.sizes().items():
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


def main(path: str) -> None:
    """Run the step of a request file in this process, write its result and exit."""
    die_with_parent(int(os.environ[PARENT_VARIABLE]))
    explain_death()
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    if script := stand_in.active():
        script.install()
    began = time.perf_counter()
    try:
        module = importlib.import_module(request["module"])
        result = {**getattr(module, request["step"])(request), "seconds": time.perf_counter() - began}
    except MemoryError as error:
        result = {"out_of_memory": describe_error(error)}
    except Unavailable as error:
        result = {"unavailable": str(error)}
    except Exception as error:
        traceback.print_exc()
        result = {"failed": str(error) if isinstance(error, StageError) else describe_error(error)}
    disk.write_json(Path(request["result"]), result)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
