"""Running pytest in a child process, and again for what is left when an item takes the process down."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ane_sweep.bridge import protocol
from tests.proof.upstream.plugin import Settings

ITEM_SECONDS = 600
_CRASHES = 20  # a suite that takes its process down this often has said enough


@dataclass
class Ended:
    """What a suite left: one entry an item, by node id, and what could not be collected."""

    items: dict[str, dict[str, Any]]
    errors: list[str]


def run(files: list[Path], settings: Settings, extras: list[Path], *, backward: bool = False) -> Ended:
    """Run the chosen items of `files`; an item that crashes or hangs is noted and the others go on."""
    items: dict[str, dict[str, Any]] = {}
    errors: list[str] = []
    if not files:
        return Ended(items, errors)
    for _ in range(_CRASHES):
        with tempfile.TemporaryDirectory(prefix="ane-sweep-upstream-") as scratch:
            results = Path(scratch) / "results.jsonl"
            now = replace(settings, results=str(results), done=[*settings.done, *items])
            done = subprocess.run(
                _command(files, Path(scratch)),
                env=_environment(now, scratch, extras, backward),
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
            shutil.rmtree(Path(scratch) / "tmp", ignore_errors=True)
        started = [line["start"] for line in lines if "start" in line]
        for line in lines:
            if "node" in line and items.get(line["node"], {}).get("outcome") != "failed":  # setup, call, teardown
                items[line["node"]] = line
        if done.returncode in (0, 1, 2, 5) and lines:
            errors += _collection_errors(done.stdout)
            break
        crashed = next((node for node in reversed(started) if node not in items), None)
        if crashed is None:
            errors.append(f"pytest ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
            break
        items[crashed] = {
            "node": crashed, "outcome": "crashed", "error": f"exit {done.returncode}", "text": done.stderr[-800:],
            "models": [], "predicted": True, "seconds": 0.0, "where": "", "tail": (done.stdout + done.stderr)[-4000:],
        }  # fmt: skip
    return Ended(items, errors)


def _command(files: list[Path], scratch: Path) -> list[str]:
    config = scratch / "pytest.ini"  # an empty one, else the nearest counts; pytest 9 refuses /dev/null
    config.write_text("[pytest]\n")
    return [
        sys.executable, "-P", "-m", "pytest", "-p", "tests.proof.upstream.plugin", "-c", str(config),
        "--rootdir", str(files[0].anchor), "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto",
        "--continue-on-collection-errors", "-W", "ignore", f"--timeout={ITEM_SECONDS}", *map(str, files),
    ]  # fmt: skip


def _environment(settings: Settings, scratch: str, extras: list[Path], backward: bool) -> dict[str, str]:
    temporary = Path(scratch) / "tmp"
    temporary.mkdir()
    inherited = protocol.python_environment()
    return {
        **inherited,
        **settings.to_file(Path(scratch) / "settings.json"),
        "PYTHONPATH": os.pathsep.join(filter(None, [inherited.get("PYTHONPATH"), *map(str, extras)])),
        "TMPDIR": str(temporary),
        "PYMIL_TEST_TARGETS": "mlprogram",
        "INCLUDE_MIL_FP32_UNIT_TESTS": "1",
        "TORCH_FRONTENDS": "TORCHSCRIPT,TORCHEXPORT",
        "HF_HUB_OFFLINE": "1",
        **({"RUN_BACKWARD_COMPATIBILITY": "1"} if backward else {}),
    }


def _collection_errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("ERROR ") and "::" not in line]
