"""Nets whose blocks decide more than their own constants: grown or converted whole, the same bytes always.

By hand, so many, and from which on: `ANE_SWEEP_GROW_NETS=3000 ANE_SWEEP_GROW_FROM=1 pytest -n0 -m slow
tests/grow/test_dependencies.py`.
"""

import gc
import importlib
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ane_sweep.errors import StageError  # noqa: E402
from ane_sweep.worker import grow  # noqa: E402
from ane_sweep.worker.stages import convert  # noqa: E402
from tests.bench import growing  # noqa: E402
from tests.grow import dependencies  # noqa: E402
from tests.grow.given import asked, nets  # noqa: E402, F401  a fixture


@pytest.fixture(autouse=True)
def quickly(nets, monkeypatch):  # noqa: F811
    """Nets lie in a file; one thread, no bars, and nothing to collect but what a net leaves: a conversion collects four times."""
    nets(dependencies.__file__)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    importlib.import_module("coremltools")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def convert_both_ways(number: int, folder: Path, monkeypatch) -> str:
    """Return what became of a net of dependencies.py: grown, wrong, kept, or refused."""
    params, inputs = asked({"number": number}, [1, 3, 8], "fp32" if number % 3 == 0 else "fp16")
    few, whole = folder / f"few_{number}", folder / f"whole_{number}"
    few.mkdir()
    whole.mkdir()
    try:
        monkeypatch.setenv(grow.VARIABLE, "1")
        if not convert.run(params, inputs, few).realised["grown_blocks"]:
            return "kept"
        monkeypatch.setenv(grow.VARIABLE, "0")
        convert.run(params, inputs, whole)
        return "grown" if growing.same(few, whole) else "wrong"
    except StageError:
        return "refused"  # whole, too, if it was not grown
    finally:
        shutil.rmtree(few)
        shutil.rmtree(whole)


def convert_all(numbers: Iterable[int], tmp_path, monkeypatch) -> Counter:
    seen, wrong = Counter(), []
    for number in numbers:
        found = convert_both_ways(number, tmp_path, monkeypatch)
        seen[found] += 1
        if found == "wrong":
            wrong.append(str(dependencies.Drawn(number)))
    assert not wrong, "\n".join(wrong)
    return seen


@pytest.mark.slow
def test_nets_of_dependent_constants_are_the_same_bytes(tmp_path, monkeypatch):
    first = {}
    for number in range(1, 1000):
        first.setdefault(dependencies.Drawn(number).trap, number)
    seen = convert_all([first[trap] for trap in ("name", "item", "traced")] + [18, 30], tmp_path, monkeypatch)
    assert seen == {"kept": 3, "grown": 2}


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_nets_of_dependent_constants_are_the_same_bytes(tmp_path, monkeypatch, capsys):
    first = int(os.environ.get("ANE_SWEEP_GROW_FROM") or 25)
    count = int(os.environ.get("ANE_SWEEP_GROW_NETS") or 500)
    seen = convert_all(range(first, first + count), tmp_path, monkeypatch)
    with capsys.disabled():
        print(f"\n{count} nets: {dict(seen)}")
    assert seen["grown"] and seen["kept"]
