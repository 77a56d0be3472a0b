"""A kind of model is one row: what one more costs is counted, and no code asks for the word itself."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ane_sweep.bridge.kinds import KINDS
from tests.tiny import RAN

ROOT = Path(__file__).parents[2]
# A family declares what it builds by these words, and the planner writes one where it cuts a model.
ROW = '    "regressor": Kind("seq_len", "sentences", "vectors", 4, "grades texts", scores=("embedding",), sample="pairs.tsv"),\n'
FAMILY = '''"""BERT for grades of texts."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import bert

SERVES = Serves(architectures={"GradedModel": "regressor"}, model_types=("graded",))
FAMILY = replace(bert.FAMILY, builds={"regressor": "BertModel"}, ignored=())
'''
OPTION = """family: graded
size: tiny
parameters: 100000
arch: {hidden_act: gelu, hidden_size: 32, intermediate_size: 64, layer_norm_eps: 1.0e-12, max_position_embeddings: 64,
  num_attention_heads: 2, num_hidden_layers: 2, type_vocab_size: 2, vocab_size: 300}
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package with one more kind of model, in three files, and how to run it."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("ane_sweep", "conf"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    kinds = root / "ane_sweep" / "bridge" / "kinds.py"
    kinds.write_text(kinds.read_text().replace("KINDS = {\n", "KINDS = {\n" + ROW))
    (root / "ane_sweep" / "worker" / "models" / "graded.py").write_text(FAMILY)
    (root / "conf" / "model" / "tiny-graded.yaml").write_text(OPTION)

    def run(*args: str) -> subprocess.CompletedProcess:
        env = {**os.environ, "PYTHONPATH": str(root), "ANE_SWEEP_OUT": str(root / "outputs"), "COLUMNS": "200"}
        words = [sys.executable, "-P", "-m", "ane_sweep", *args]
        return subprocess.run(words, capture_output=True, text=True, env=env, cwd=root, input="Once")

    return run


@pytest.mark.slow
def test_one_more_kind_is_a_row_a_family_and_an_option(copied):
    asked = (
        "-m",
        "model=tiny-graded",
        "weights=random",
        "seq_len=16",
        "runtime=reference",
        "variant=original,split_einsum",
        "latency.repeats=1",
        "latency.samples=3",
        "gate.wait_s=0",
        "tracking.enabled=false",
    )
    done = copied(*asked)
    assert done.returncode in RAN and "2 cells" in done.stdout, done.stderr


@pytest.mark.slow
def test_its_refusals_follow(copied):
    for words, why in (
        ("cache=stateful", "tiny-graded is of task regressor, which"),
        ("score=perplexity", "tiny-graded is of task regressor; use score=embedding or score=none"),
        ("own_chunks=head chunks=3", "has no vocabulary head or classifier; use own_chunks=embeddings or none"),
    ):
        asked = copied("plan", "model=tiny-graded", "weights=random", "seq_len=16", *words.split())
        assert why in " ".join((asked.stdout + asked.stderr).split()), words
    talked = copied("generate", "model=tiny-graded", "weights=random")
    assert talked.returncode == 2 and "model=tiny-graded grades texts; ane-sweep generate takes" in talked.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "ane_sweep").rglob("*.py")), ids=lambda path: path.stem)
def test_no_code_compares_the_word_of_a_kind(path):
    words = set(KINDS) - {"encoder"}  # which is also a half of T5 and a probe's name
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            values = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            assert not words & {value for value in values if isinstance(value, str)}, f"{path} line {node.lineno}"
