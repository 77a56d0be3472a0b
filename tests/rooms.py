"""A room in which tests run stages that they write themselves, in real workers: started cold, or forked from a parent."""

import os
import textwrap
from pathlib import Path

from ane_sweep.bridge.task import Limits, TaskRequest, TaskResult
from ane_sweep.runner import isolate
from ane_sweep.runner.fork_server import ForkServers

REPO = Path(isolate.__file__).resolve().parents[2]
LOADS = ("json",)  # what a parent of theirs has loaded: as good as nothing


class Room:
    """Runs stages given as source text in real workers."""

    def __init__(self, base: Path, fork_servers: ForkServers | None = None):
        self.base, self.fork_servers = base, fork_servers
        self.folder = base / "task"
        self.children = isolate.Children()
        self.path = base / "path"
        self.path.mkdir()
        # The worker imports ane_sweep.worker.stages.<name>; this lets it find more stages without a hook in the product.
        self.path.joinpath("sitecustomize.py").write_text(
            f"import ane_sweep.worker.stages\nane_sweep.worker.stages.__path__.append({str(self.path)!r})\n"
        )

    def task(self, body: str = "return StageResult()", **more) -> TaskRequest:
        source = "import os, sys, time\nfrom pathlib import Path\n"
        source += "from ane_sweep.bridge.figures import Metric\nfrom ane_sweep.worker.stages import StageResult\n"
        source += "from ane_sweep.errors import *\ndef run(params, inputs, out):\n" + textwrap.indent(body, "    ")
        self.path.joinpath("fake.py").write_text(source)
        limits = Limits(more.pop("memory_bytes", None))
        params = {"options": {"fault": more.pop("fault")}} if "fault" in more else {}
        asked = {
            "params": params,
            "inputs": {},
            "out": self.base / "out",
            "tmp": self.base / "tmp",
            "threads": 1,
        } | more
        return TaskRequest(stage=asked.pop("stage", "fake"), key="k1", limits=limits, **asked)

    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": f"{self.path}{os.pathsep}{REPO}", "PYTHONDONTWRITEBYTECODE": "1"}

    def how(self) -> dict[str, object]:
        return {"children": self.children, "fork_servers": self.fork_servers, "loads": LOADS}

    def run(self, body: str = "return StageResult()", *, timeout_s=30.0, watch_memory=False, **more) -> TaskResult:
        task = self.task(body, **more)
        result = isolate.run_task(
            task, self.folder, timeout_s=timeout_s, watch_memory=watch_memory, env=self.env(), **self.how()
        )
        assert not self.children._live
        assert not task.tmp.exists()
        assert TaskResult.read(self.folder / "result.json") == result
        return result
