import json

import pytest

from ane_sweep.machine import stand_in
from tests.stand_in import read


@pytest.fixture
def on_an_m4(tmp_path, monkeypatch):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"name": "t", "source": "constructed", "answers": [], "host": {"chip": "Apple M4"}}))
    monkeypatch.setenv(stand_in.VARIABLE, str(path))
    read.cache_clear()
    yield
    read.cache_clear()
