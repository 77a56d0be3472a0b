"""model=exported: files of torch.export and TorchScript compute what the module computed, and other files are refused."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.planner import exported
from ane_sweep.worker.models import exported as door


@pytest.fixture
def net(tmp_path, monkeypatch) -> nn.Module:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Dropout(), nn.Flatten(), nn.Linear(144, 5)
    ).eval()


EXAMPLE = torch.rand(1, 3, 8, 8)


def settle(path: str, **option):
    return exported.resolve({"name": "exported", "path": path, **option}, "pretrained", 0, Path("digests.json"))


def build(path: str, **option):
    source = settle(path, **option)
    return door.build_given({"model": {"arch": source.arch}}, dict(source.beside))


def test_a_pt2_file_is_run_on_its_example_and_converted_in_eval_mode(net):
    torch.export.save(torch.export.export(net, (EXAMPLE,)), "net.pt2")
    module = build("net.pt2")
    assert torch.equal(module.example[0], EXAMPLE)
    torch.testing.assert_close(module(EXAMPLE)[0], net(EXAMPLE))
    assert build("net.pt2", inputs={"image": [1, 3, 8, 8]}).ports.inputs[0].name == "image"


def test_free_sizes_of_an_export_are_fixed_at_its_example_or_at_what_is_asked(net):
    """A program with free sizes cannot be traced, as its sizes are symbols."""

    class Free(nn.Module):
        def forward(self, x):
            return x.mean(dim=(2, 3)).view(x.shape[0], -1) * x.shape[0]

    many = torch.rand(2, 3, 8, 8)
    free = {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
    torch.export.save(torch.export.export(Free(), (many,), dynamic_shapes=free), "free.pt2")
    module = build("free.pt2")
    torch.testing.assert_close(torch.jit.trace(module, many)(many)[0], Free()(many))
    assert build("free.pt2", inputs={"x": [4, 3, 8, 8]}).ports.outputs[0].shape == (4, 3)


def test_a_torchscript_file_takes_the_inputs_that_the_user_gives(net):
    torch.jit.trace(net, EXAMPLE).save("net.pt")
    with pytest.raises(ConfigError, match="holds no inputs; give them"):
        settle("net.pt")
    module = build("net.pt", inputs={"image": [1, 3, 8, 8]})
    torch.testing.assert_close(module(EXAMPLE)[0], net(EXAMPLE))


def test_files_without_a_program_are_refused(net):
    torch.save(net.state_dict(), "weights.pt")
    Path("text.pt2").write_text("x")
    for name, reason in {
        "weights.pt": "holds no program",
        "text.pt2": "is no file of",
        "none.pt2": "no such file",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            settle(name, inputs={"image": [1, 3, 8, 8]})


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("net.pt2", marks=pytest.mark.ci), "net.pt"])
def test_a_sweep_over_an_exported_program(net, capsys, name):
    torch.export.save(torch.export.export(net, (EXAMPLE,)), "net.pt2")
    torch.jit.trace(net, EXAMPLE).save("net.pt")
    words = [
        "model=exported",
        f"model.path={name}",
        "model.inputs={image: [1,3,8,8]}",
        "latency=off",
        "runtime=reference",
    ]
    assert main([*words, "out=o", "tracking.enabled=false"]) == 0
    said = capsys.readouterr()
    assert "1 ok" in said.out + said.err


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [("net.pt2", []), ("net.pt", ["--inputs", "{image: [1,3,8,8]}"])])
def test_lint_converts_an_exported_program_first(net, capsys, name, words):
    torch.export.save(torch.export.export(net, (EXAMPLE,)), "net.pt2")
    torch.jit.trace(net, EXAMPLE).save("net.pt")
    assert main(["lint", name, *words]) == 1, "so small a net is faster on the CPU"
    said = capsys.readouterr().out
    assert said.startswith(f"{name}: NOT enough on the ANE") and " (conv) on the CPU: the ANE takes it, but " in said


@pytest.mark.slow
def test_lint_keeps_two_files_of_one_name_apart(net, capsys):
    for folder in ("a", "b"):
        Path(folder).mkdir()
        torch.export.save(torch.export.export(net, (EXAMPLE,)), f"{folder}/net.pt2")
    assert main(["lint", "a/net.pt2", "b/net.pt2"]) == 1
    said = capsys.readouterr().out
    assert "a/net.pt2: NOT enough on the ANE" in said and "b/net.pt2: NOT enough on the ANE" in said
