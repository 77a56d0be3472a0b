"""`lint` of Core AI's assets: what it reads, the known faults, and the words that have no meaning there.

data/batch_norm_of_0.4.1.aimodel   Conv2d(3, 8, 3) and BatchNorm2d(8) in fp16, written by coreai-torch 0.4.1 with
                                   coreai-core 1.0.0b2
"""

import json
import shutil
from pathlib import Path

import pytest

from ane_sweep.__main__ import main
from ane_sweep.errors import PackageError
from ane_sweep.hazards import assets
from ane_sweep.machine import asset_ops, coreai
from ane_sweep.machine.asset_ops import AssetOp

OLD = Path(__file__).parent / "data" / "batch_norm_of_0.4.1.aimodel"
needs_coreai = pytest.mark.skipif(bool(coreai.find_missing()), reason="needs the extra coreai")


def rules(*ops: AssetOp) -> list[str]:
    return [finding.rule for finding in assets.find_faults(ops)]


def scaled(codes: str, scales: str) -> AssetOp:
    return AssetOp("blockwise_shift_scale", "main", [codes, scales], ["tensor<64x64xf16>"])


@pytest.mark.parametrize(
    ("op", "found"),
    [
        (scaled("tensor<64x64xsi8>", "tensor<64x2xf16>"), ["asset/block_scales"]),
        (scaled("tensor<64x64xui4>", "tensor<64x2xf16>"), ["asset/block_scales"]),
        (scaled("tensor<64x64xsi8>", "tensor<64x1xf16>"), []),
        (scaled("tensor<64x64xsi8>", "tensor<1x1xf16>"), []),
        (scaled("tensor<64x64xf4E2M1FN>", "tensor<64x2xf8E8M0FNU>"), []),
        (AssetOp("sqrt", "batch_norm_abcdefgh", ["tensor<8xf16>"], ["tensor<8xf16>"]), ["asset/fp16_batch_norm"]),
        (AssetOp("sqrt", "main", ["tensor<8xf16>"], ["tensor<8xf16>"]), []),
        (AssetOp("sqrt", "batch_norm_abcdefgh", ["tensor<8xf32>"], ["tensor<8xf32>"]), ["asset/fp32_ops"]),
        (AssetOp("mul", "main", [], ["tensor<8xf16>"], ["dequantize", "dequantize"], ["quantize"]), ["asset/quantized_products"]),
        (AssetOp("mul", "main", [], ["tensor<8xf16>"], ["dequantize", "dequantize"], ["clamp"]), []),
        (AssetOp("cast", "main", ["tensor<8xf16>"], ["tensor<8xf32>"]), []),
    ],
)  # fmt: skip
def test_each_known_fault_is_found_and_its_look_alike_is_not(op, found):
    assert rules(op) == found


def test_a_compiled_asset_without_a_part_for_the_neural_engine_fails(tmp_path, capsys):
    made = tmp_path / "net.h18p.aimodelc"
    (made / "main-h18p-delegates" / "MPSGraph").mkdir(parents=True)
    assert main(["lint", str(made)]) == 1
    said = capsys.readouterr().out
    assert (
        "NOT ok   compiled for h18p; regions: none" in said and "FAIL  no part of it is for the Neural Engine" in said
    )
    assert "apple/coreai-models#205" in said
    assert main(["lint", str(made), "--compute-units", "cpu_and_gpu"]) == 0
    for name in ("main_ANE_region_1_0.bc", "main_ANE_region_1_0.bc.mlir", "main_ANE_region_2_0.bc"):
        (made / "main-h18p-delegates" / name).touch()
    (made / "main-h18p-delegates" / "manifest.plist").write_bytes(b"..mps.fullyPlacedOnANE..mps.noGPUActivity")
    capsys.readouterr()
    assert main(["lint", str(made / "main-h18p-delegates" / "manifest.plist"), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["assets"]
    assert entry["regions"] == {"ANE": 2} and entry["architectures"] == ["h18p"] and entry["whole"] and entry["verdict"]


def test_an_asset_of_0_4_0_is_named_before_anything_reads_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(asset_ops, "read", lambda path: pytest.fail("coreai-core would end this process"))
    made = tmp_path / "old.aimodel"
    made.mkdir()
    (made / "metadata.json").write_text('{"assetVersion": "2.0"}')
    assert main(["lint", str(made)]) == 1
    assert "FAIL  made by coreai-torch 0.4.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min-ane", "90"], "--min-ane: of Core ML's packages: nothing predicts where an asset's ops run"),
        (["--max-ms", "2"], "--max-ms: of Core ML's packages: nothing predicts"),
        (["--numbers"], "--numbers: of Core ML's packages: nothing predicts"),
        (["--format", "sarif"], "--format sarif: of assets there is text and json"),
        (["model.mlpackage"], "are judged by different rules; name one kind"),
    ],
)
def test_words_without_a_meaning_for_assets_are_refused(tmp_path, capsys, words, said):
    assert main(["lint", str(tmp_path / "net.aimodel"), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gone.aimodel", "gone.aimodelc", "empty.aimodel", "empty.aimodelc"])
def test_what_is_no_asset_is_told(tmp_path, capsys, name):
    (tmp_path / "empty.aimodel").mkdir()
    (tmp_path / "empty.aimodelc").mkdir()
    assert main(["lint", str(tmp_path / name), "--json"]) == 2
    told = capsys.readouterr()
    assert str(tmp_path / name) in told.err and len(json.loads(told.out)["errors"]) == 1


@needs_coreai
def test_an_asset_is_read_in_a_process_of_its_own(capsys, tmp_path):
    assert main(["lint", str(OLD), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["assets"]
    assert entry["producer"] == "coreai-core 1.0.0b2" and entry["ops"]["conv2d"] == 1
    assert entry["weights"]["f16"] > 8 * 3 * 3 * 3
    assert [one["rule"] for one in entry["findings"]] == ["asset/fp16_batch_norm"]
    assert main(["lint", str(OLD)]) == 0 and "ok, with 1 warning" in capsys.readouterr().out
    broken = tmp_path / "broken.aimodel"
    shutil.copytree(OLD, broken)
    (broken / "main.mlirb").write_bytes((broken / "main.mlirb").read_bytes()[:200])
    with pytest.raises(PackageError, match="coreai-core does not read it"):
        asset_ops.read(broken)
