"""The axis `rewrite`: which rewrites a cell gets, what is shared, what is refused, and a program that is rewritten and scored."""

import json

import pytest
from placement.by_hand import conv_chain
from planner.test_plan import planned
from verbs.test_packages_of_others import detector

from ane_sweep import sweep
from ane_sweep.__main__ import main
from ane_sweep.bridge.record import read_records
from ane_sweep.errors import ConfigError
from ane_sweep.fix.rewrite import REWRITES
from ane_sweep.planner import config, rewriting
from ane_sweep.report import inside
from ane_sweep.report.blocks import Grid
from ane_sweep.report.views import Cells

TINY = ("model=tiny-gpt2", "weights=random", "runtime=reference")
SPLIT, SHIFTED = "split_to_slices", "softplus_shifted"
NET = """
from torch import nn


def convs():
    return nn.Sequential(*(layer for _ in range(6) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = convs(), convs()

    def forward(self, x):
        return 2 * nn.functional.softplus(self.after(nn.functional.pad(self.before(x), (3, 1, 1, 2), mode="reflect")))
"""


def keys(stage: str, *words: str) -> list[str]:
    return [task.key for task in planned(*words).tasks.values() if task.stage == stage]


def cell(*words: str):
    (made,) = config.load([*TINY, *words]).cells
    return made


def test_a_word_stands_for_the_rewrites_of_a_kind_and_names_for_themselves():
    kinds = {
        one.kind: [name for name, other in REWRITES.items() if other.kind == one.kind] for one in REWRITES.values()
    }
    assert rewriting.choose(cell()) == []
    assert rewriting.choose(cell("rewrite=ane")) == kinds["placement"]
    assert rewriting.choose(cell("rewrite=accurate")) == kinds["accuracy"]
    assert rewriting.choose(cell("rewrite=all")) == list(REWRITES)
    assert rewriting.choose(cell(f"rewrite={SPLIT}")) == [SPLIT]
    both = {SPLIT, SHIFTED}
    assert rewriting.choose(cell(f"rewrite=[{SHIFTED},{SPLIT}]")) == [name for name in REWRITES if name in both]


def test_a_program_is_rewritten_once_for_all_precisions_chunks_and_units():
    made = planned(
        "-m", *TINY, "rewrite=none,ane", "precision=fp16,p4,p6", "chunks=1,2", "compute_units=all,cpu_and_ne"
    )
    counts = {
        stage: sum(task.stage == stage for task in made.tasks.values()) for stage in ("convert", "rewrite", "compress")
    }
    assert counts == {"convert": 1, "rewrite": 1, "compress": 4}
    (task,) = (task for task in made.tasks.values() if task.stage == "rewrite")
    assert task.params == {"rewrites": rewriting.choose(cell("rewrite=ane")), "chip": "m4"}


def test_one_key_for_the_same_rewrites_and_another_for_another_chip():
    (one,) = keys("rewrite", *TINY, f"rewrite={SPLIT}")
    assert keys("rewrite", *TINY, f"rewrite=[{SPLIT}]") == [one]
    assert keys("rewrite", *TINY, f"rewrite={SHIFTED}") != [one]
    assert keys("rewrite", *TINY, f"rewrite={SPLIT}", "precision=fp32") != [one]
    plain = planned(*TINY)
    assert not [task for task in plain.tasks.values() if task.stage == "rewrite"]


def test_nothing_of_a_cell_without_rewrites_is_made_anew():
    before, after = planned(*TINY), planned("-m", *TINY, "rewrite=none,ane")
    assert before.tasks.keys() < after.tasks.keys()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("rewrite=an", "rewrite=an: unknown (did you mean 'ane'?); choices: none, ane, accurate, all, "),
        ("rewrite=[ane,split_to_slice]", f"rewrite=split_to_slice: unknown (did you mean '{SPLIT}'?); choices: none"),
        ("rewrite=[none,ane]", "rewrite=['none', 'ane']: expected names of rewrites; rewrite=none applies none"),
        ("rewrite=[]", "rewrite=[]: expected names of rewrites"),
        ("rewrite=true", "rewrite=True: expected text or a list"),
    ],
)
def test_a_wrong_word_is_refused_with_the_choices_before_anything_runs(word, message):
    with pytest.raises(ConfigError) as found:
        config.load([*TINY, word])
    assert message in str(found.value)


def test_a_runtime_of_torch_knows_no_rewrite():
    made = planned("-m", "model=tiny-gpt2", "weights=random", "runtime=torch_eager", "rewrite=none,ane")
    assert [note for note in made.notes if "rewrite not applicable: runtime=torch_eager does not know it" in note]
    assert len(set(map(tuple, made.chains.values()))) == 1


def test_a_package_is_rewritten_and_a_pipeline_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    conv_chain(tmp_path / "net.mlpackage", 3, channels=8, size=8)
    detector(tmp_path / "yolo.mlpackage")
    words = ["plan", "-m", "model=package", "runtime=reference", "rewrite=none,ane", "latency=off"]
    assert main([*words, "model.path=net.mlpackage"]) == 0
    assert "1 rewritings       for 1 cell\n" in capsys.readouterr().out
    main([*words, "model.path=yolo.mlpackage"])
    said = "".join(capsys.readouterr())
    assert "rewrite=ane: a pipeline is run as it is: rewrite=none, or take its program out of it" in said


def test_the_kept_matrix_has_every_rewrite_by_itself_and_the_yardstick():
    cells = config.load(["+sweep=rewrites"]).cells
    values = [cell.rewrite for cell in cells if (cell.model, cell.variant) == ("gpt2", "original")]
    assert values == ["none", "ane", "accurate", "all", *sorted(REWRITES)]
    assert [cell.rewrite for cell in cells if cell.variant == "split_einsum"] == ["none"] * 5
    assert {cell.model for cell in cells} == {"gpt2", "minilm", "vit-base-encoder", "unet-tiny", "whisper-tiny"}


def test_globs_choose_among_the_choices_of_an_axis():
    found = config.load(["-m", *TINY, "variant=glob(split*)"]).cells
    assert [cell.variant for cell in found] == ["split_einsum", "split_einsum_v2"]
    with pytest.raises(ConfigError, match=r"glob\(\) chooses among options of a group .* or an axis's choices"):
        config.load(["-m", *TINY, "seq_len=glob(1*)"])


@pytest.mark.slow
def test_a_rewritten_net_is_scored_as_the_original_and_its_record_and_report_name_the_rewrites(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    sweep(
        "model=module runtime=reference latency=off tracking.enabled=false precision=fp16,p8 'model.inputs={x:[1,64,32,32]}'",
        rewrite=["none", "all"], out=str(tmp_path / "out"), chips=["m1"], **{"model.path": f"{tmp_path}/net.py:Net"},
    )  # fmt: skip
    (run,) = (tmp_path / "out" / "runs").glob("2*")
    records = {(record.cell["rewrite"], record.cell["precision"]): record for record in read_records(run)}
    assert len(records) == 4 and all(record.status in ("ok", "degraded") for record in records.values())
    done = records["all", "fp16"].realised["rewrites"]
    assert done["chip"] == "m1" and "reflect_pad" in [one["name"] for one in done["applied"]]
    assert records["all", "p8"].realised["rewrites"] == done and "rewrites" not in records["none", "fp16"].realised
    for precision in ("fp16", "p8"):
        plain, made = (records[rewrite, precision] for rewrite in ("none", "all"))
        assert abs(plain.value("psnr_db") - made.value("psnr_db")) < 2  # softplus of more ops: 1.15
        assert made.value("ops_ane", "predicted", "m1") > plain.value("ops_ane", "predicted", "m1")
    (path,) = (one.path for one in records["all", "fp16"].artifacts if one.path.endswith("rewrites.json"))
    account = json.loads((tmp_path / "out" / path).read_text())
    assert [trial["rewrite"] for trial in account["trials"] if trial["status"] == "applied"]
    section = inside.section(Cells(list(records.values())))
    (grid,) = (block for block in section.blocks if isinstance(block, Grid))
    row = next(row for row in grid.rows if row[2] == "reflect_pad")
    assert row[1:5] == ["m1", "reflect_pad", "1", "applied"] and row[0] == "all fp16, all p8"


@pytest.mark.slow
def test_a_stateful_program_is_rewritten_and_scored(tmp_path):
    sweep(
        "model=tiny-gpt2 weights=random runtime=reference latency=off tracking.enabled=false cache=stateful seq_len=32",
        rewrite=["none", "ane"], out=str(tmp_path / "out"), chips=["m4"],
    )  # fmt: skip
    (run,) = (tmp_path / "out" / "runs").glob("2*")
    plain, made = sorted(read_records(run), key=lambda record: record.cell["rewrite"] == "ane")
    assert plain.status == made.status == "ok" and made.realised["rewrites"]["applied"]
    assert abs(plain.value("psnr_db") - made.value("psnr_db")) < 1
    assert made.value("latency_ms", "estimated", "m4") < plain.value("latency_ms", "estimated", "m4")
