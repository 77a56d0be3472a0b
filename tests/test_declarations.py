"""One declaration a thing: how many files one more of each needs, and that nobody else keeps a list of them."""

import ast
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from placement.by_hand import conv_chain

import ane_sweep
from ane_sweep.bridge import declared
from ane_sweep.bridge.programs import PROGRAMS
from ane_sweep.bridge.runtimes import RUNTIMES, Traits, traits
from ane_sweep.bridge.stages import ALL, STAGES, Stage
from ane_sweep.errors import ConfigError
from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir
from ane_sweep.terminal import IN_DOUBT
from ane_sweep.worker import programs

PACKAGE = Path(ane_sweep.__file__).parent
TINY = (
    "model=tiny-gpt2",
    "weights=random",
    "seq_len=8",
    "tracking.enabled=false",
    "latency.repeats=1",
    "latency.samples=2",
)
STAGE = """
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.worker.stages import StageResult

STAGE = Stage(order=115, many="warm-ups", timeout_s=77, base_gib=0.5, per_byte=0.5, stored=False, alone=True, last=True)


def run(params, inputs, out):
    return StageResult([Metric("warmth", 3, "1")])
"""
RUNTIME = """
from ane_sweep.bridge.runtimes import Traits
from ane_sweep.worker.runtimes import reference

RUNTIME = Traits(
    needs="program",
    measured="reference runtime in another room",
    hardware="abacus",
    honours=("chunks", "precision", "target"),
    asks=("ane_sweep.worker.runtimes.echo:beads",),
)


def beads():
    return 7


def available():
    return None


def load(params, inputs):
    loaded = reference.load(params, inputs)
    loaded.realised["runtime"] = "echo"
    return loaded
"""
KIND = {
    "__init__.py": """
from ane_sweep.bridge.programs import ProgramKind

PROGRAM = ProgramKind(title="TorchScript", suffix=".pt")
""",
    "size.py": """
def measure_bytes(program):
    return program.stat().st_size


def compute_bits_per_weight(program, numbers):
    return 8 * program.stat().st_size / numbers
""",
    "convert.py": """
import json

import torch

from ane_sweep.worker.grow import growing


def convert(jobs, target):
    job = jobs["main"]
    examples = tuple(torch.zeros(port.shape, dtype=getattr(torch, port.dtype)) for port in job.ports.inputs)
    with torch.no_grad(), growing.materialise_tensors(job.module):
        traced = torch.jit.trace(job.module, examples, check_trace=False)
        numbers = sum(tensor.numel() for tensor in job.module.state_dict().values())
    names = [[port.name for port in ports] for ports in (job.ports.inputs, job.ports.outputs)]
    torch.jit.save(traced, str(target), _extra_files={"names": json.dumps(names)})
    return {"ops": 1, "parameter_bytes": 4 * numbers, "numbers": numbers}
""",
    "run.py": """
import json

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.worker.runtimes._runtime import Runtime

RUNTIME = Traits(needs="program", program="script", measured="TorchScript here", hardware="CPU", honours=("precision",))


def available():
    return None


class Script(Runtime):
    realised = {"runtime": "script", "numerics": "fp32", "threads": 1, "compute_units": None, "chunks": 1}

    def __init__(self, path):
        import torch

        extra = {"names": ""}
        self.torch, self.module = torch, torch.jit.load(str(path), _extra_files=extra)
        self.takes, self.gives = json.loads(extra["names"])

    def predict(self, inputs):
        made = self.module(*[self.torch.from_numpy(inputs[name]) for name in self.takes])
        return {name: value.numpy() for name, value in zip(self.gives, made)}


def load(params, inputs):
    return Script(inputs["program"] / "model.pt")
""",
}
EXECUTOR = """
from ane_sweep.bridge.executors import Executor
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus

EXECUTOR = Executor(help="a machine that declines every task")


def execute(plan, run, store, settings, display, budget, outcomes=None, meanwhile=None):
    outcomes = {} if outcomes is None else outcomes
    for task in plan.tasks.values():
        outcomes[task.key] = Outcome(StageStatus.SKIPPED, "declined by its executor")
        display.end(task, outcomes[task.key])
    return outcomes
"""
REWRITE = '''"""mirror: outputs turned over"""

from torch import nn

from ane_sweep.bridge.rewrites import Rewrite

REWRITE = Rewrite(
    order=50,
    help="outputs turned over so often",
    plain=0,
    most=2,
    changes="module",
    models="decoders",
    only=({"other": "cache", "among": ("none",), "why": "mirror={value} keeps nothing; use cache=none"},),
)


class Mirror(nn.Module):
    def __init__(self, inner, times):
        super().__init__()
        self.inner, self.sign = inner, (-1.0) ** times

    def forward(self, *inputs):
        return tuple(self.sign * made for made in self.inner(*inputs))


def rewrite(module, ports, value):
    return Mirror(module, value)


def change_left_out(names, value):
    names.add("common::mirror")
'''
MIRRORED = """
import torch
from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.planner import options
from ane_sweep.worker import models, rewrites
from ane_sweep.worker.models import weights

model = {key: options.shipped("model", "tiny-gpt2")[key] for key in ("family", "task", "arch")}
family, state = models.get("gpt2"), weights.make_random_state(model, 0)
ids = torch.arange(16, dtype=torch.int32)[None]
plain, once, twice = (family.VARIANTS["split_einsum"](model, state, 16, one)(ids)[0]
                      for one in (PLAIN, Options(mirror=1), Options(mirror=2)))
print(bool((plain == -once).all()), bool((plain == twice).all()), sorted(rewrites.left_out_passes(set(), Options(mirror=1))))
"""
VERB = '''"""`ane-sweep greet NAME`: says hello to somebody"""

from ane_sweep.terminal import OK
from ane_sweep.words import Parser


def greet(args: list[str]) -> int:
    parser = Parser("greet NAME", "Say hello.", "ane-sweep greet Ada")
    parser.add_argument("name", metavar="NAME", help="of somebody")
    print(f"hello, {parser.read(args).name}")
    return OK
'''

SCORED = """
import numpy as np
from ane_sweep.search import goal
from ane_sweep.worker.stages import score

scores = score._Scores(False)
scores.add("x", np.zeros((1, 4)), np.arange(4.0)[None], np.ones(1, bool))
print({one.name: one.value for one in scores.metrics()}["worst_error"], goal.parse(["worst_error<=2"])[0])
"""
CHIP = """  {"chip": "m9", "family": "H18G", "ane_cores": 16, "tops": 45, "fp16_tflops": 9.0, "weight_gbs": 80, "dram_gbs": 160,
   "dispatch_ms": 0.2, "mapped_limit_bytes": null, "axis_limit": 65536, "ios": false, "basis": "made up",
   "sources": ["APPLE"], "confidence": "guess", "ane_tflops": 12.0},
"""
PLOT = """
from ane_sweep.report import figures
from ane_sweep.report.blocks import Plots, Section, series_legend
from ane_sweep.report.views import Cells


def section(cells: Cells) -> Section | None:
    points = [(n, n, n, cells.series(n), 3.4, name) for n, name in enumerate(cells.names)]
    svg = figures.lines([], points, x_label="its number", y_label="its number", name="numbers")
    return Section("Their numbers", [Plots([(svg, "a point a cell")], series_legend(cells.shades), cells.shade)])
"""
DRAWN = """
import sys
sys.path.append(sys.argv[1])
import constructed
from ane_sweep.report import document, page
made = page.texts(document.Sweep(constructed.records(3)))
print('<section id="their-numbers">' in made["report.html"], [name for name in made if "their-numbers" in name])
"""
BENCH = '''"""how long nothing takes"""

from tests.bench import Row


def run() -> list[Row]:
    return [Row("nothing", "0 s")]
'''


@dataclass
class House:
    """A copy of the package. `run` is its command line; `written` counts the files that were touched."""

    root: Path
    touched: set[str] = field(default_factory=set)

    @property
    def written(self) -> int:
        return len(self.touched)

    def write(self, file: str, text: str) -> None:
        (self.root / file).write_text(text)
        self.touched.add(file)

    def replace(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text()
        assert old in text, f"{file}: {old}"
        self.write(file, text.replace(old, new, 1))

    def run(self, *args: str, code: tuple[int, ...] = (0,), start: tuple[str, ...] = ("-P", "-m", "ane_sweep")) -> str:
        done = subprocess.run(
            [sys.executable, *start, *args], cwd=self.root, capture_output=True, text=True,
            env={"PYTHONPATH": str(self.root), "PATH": "", "HOME": str(self.root), "COLUMNS": "200"},
        )  # fmt: skip
        assert done.returncode in code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def house(tmp_path) -> House:
    shutil.copytree(PACKAGE, tmp_path / "ane_sweep", ignore=shutil.ignore_patterns("__pycache__", "conf"))
    shutil.copytree(conf_dir(), tmp_path / "conf")
    return House(tmp_path)


@pytest.mark.slow
def test_one_more_executor_is_one_module(house):
    house.write("ane_sweep/runner/executors/decline.py", EXECUTOR)
    assert house.written == 1
    assert "executor=decline: a machine that declines every task" in " ".join(house.run("help", "keys").split())
    house.run(*TINY, "executor=decline", code=(IN_DOUBT,))
    (records,) = (house.root / "outputs" / "runs").glob("*/records.jsonl")
    record = json.loads(records.read_text())
    assert (record["status"], record["reason"]) == ("skipped", "reference: declined by its executor")


@pytest.mark.slow
@pytest.mark.ci
def test_one_more_stage_is_one_module_and_its_edge_one_more_runtime_one_module(house):
    tasks = (house.root / "ane_sweep/planner/tasks.py").read_text()
    edge = '    chain.add("score", '
    house.write("ane_sweep/worker/stages/warm.py", STAGE)
    house.write("ane_sweep/planner/tasks.py", tasks.replace(edge, f'    chain.add("warm", {{}}, {{}})\n{edge}'))
    assert house.written == 2
    house.write("ane_sweep/worker/runtimes/echo.py", RUNTIME)
    assert house.written == 2 + 1

    assert ",score,warm,latency," in house.run("help", "keys").replace("\n", "").replace(" ", "")
    assert "  warm:\n    timeout_s: 77\n    memory_gib: null\n" in house.run("--cfg", "job")
    assert "limits.warm.timeout_s=0: must be 1 or more" in house.run("plan", "limits.warm.timeout_s=0", code=(2,))
    assert "(did you mean 'echo'?); choices: auto, coreml, echo, reference" in house.run(
        "plan", *TINY, "runtime=eco", code=(2,)
    )
    planned = house.run("plan", *TINY, "runtime=echo", "numerics=auto")
    assert "      1 scorings         for 1 cell\n      1 warm-ups         for 1 cell\n" in planned
    assert "1 refused" in house.run("plan", *TINY, "runtime=echo", "numerics=fp16", code=(2,))

    said = house.run(*TINY, "runtime=echo", "gate.wait_s=0", "out=out", code=(0, 3))  # 3: timed beside other tests
    (records,) = house.root.glob("out/runs/*/records.jsonl")
    (record,) = map(json.loads, records.read_text().splitlines())
    assert [stage["stage"] for stage in record["stages"]][-3:] == ["warm", "score", "latency"], "as the edges say"
    assert {m["name"]: m["value"] for m in record["metrics"]}["warmth"] == 3
    assert record["realised"]["runtime"] == "echo"
    assert (
        "reference runtime in another room" in said and "latency of runtime=echo is that of this host's abacus" in said
    )
    assert all(
        json.loads(path.read_text())["params"]["beads"] == 7
        for path in house.root.glob("out/runs/*/tasks/score-*/task.json")
    )


def write_kind(house: House) -> None:
    (house.root / "ane_sweep/worker/programs/script").mkdir()
    for file, text in KIND.items():
        house.write(f"ane_sweep/worker/programs/script/{file}", text)


@pytest.mark.slow
def test_one_more_kind_of_program_is_one_folder(house):
    write_kind(house)
    planned = house.run("plan", *TINY, "runtime=script", "precision=fp32")
    assert "1 conversions" in planned and "1 scorings" in planned
    assert "predictions" not in planned and "compilations" not in planned and "placements" not in planned
    refused = house.run("plan", *TINY, "runtime=script", "precision=p4", code=(2,))
    assert "precision=p4: TorchScript has no stage compress" in " ".join(refused.split())
    refused = house.run("plan", *TINY, "runtime=script", "rewrite=ane", code=(2,))
    assert "rewrite=ane: TorchScript has no stage rewrite" in " ".join(refused.split())


@pytest.mark.slow
def test_one_more_kind_of_program_is_converted_scored_and_timed(house):
    write_kind(house)
    house.run(
        *TINY, "runtime=script", "precision=fp32", "gate.wait_s=0", "out=out", code=(0, 3)
    )  # 3: timed beside tests
    (records,) = house.root.glob("out/runs/*/records.jsonl")
    (record,) = map(json.loads, records.read_text().splitlines())
    assert [stage["stage"] for stage in record["stages"]] == ["reference", "convert", "score", "latency"]
    assert record["realised"]["runtime"] == "script"
    metrics = {metric["name"]: metric["value"] for metric in record["metrics"]}
    assert metrics["psnr_db"] > 100 and metrics["package_bytes"] > 0 and metrics["bits_per_weight"] > 16
    (task,) = house.root.glob("out/runs/*/tasks/convert-*/task.json")
    assert json.loads(task.read_text())["params"]["program"] == "script"
    assert list(house.root.glob("out/**/model.pt"))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_kind_of_program_has_the_functions_that_stages_call(kind):
    protocols = {"convert": programs.Converter, "size": programs.Sizer, "compress": programs.Compressor,
                 "calibrate": programs.Calibrator, "compile": programs.ProgramCompiler, "place": programs.Placer}  # fmt: skip
    folder = PACKAGE / "worker" / "programs" / kind
    assert {part for stage in ALL.values() for part in stage.parts} == protocols.keys()
    assert {"convert", "size"} <= {path.stem for path in folder.glob("*.py")}
    for part, protocol in protocols.items():
        if (folder / f"{part}.py").is_file():
            tree = ast.parse((folder / f"{part}.py").read_text(encoding="utf-8"))
            made = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
            for name, function in vars(protocol).items():
                if inspect.isfunction(function) and not name.startswith("_"):
                    wanted = list(inspect.signature(function).parameters)[1:]
                    assert [argument.arg for argument in made[name].args] == wanted, f"{part}.{name}"


@pytest.mark.slow
def test_one_more_family_is_one_module_and_one_yaml(house):
    house.write("ane_sweep/worker/models/gpt9.py", (PACKAGE / "worker/models/gpt2.py").read_text())
    text = yaml.safe_dump(options.shipped("model", "tiny-gpt2"), sort_keys=False)
    house.write(
        "conf/model/nine.yaml", text.replace("name: tiny-gpt2", "name: nine").replace("family: gpt2", "family: gpt9")
    )
    assert "nine" in house.run("help", "model")
    assert "1 conversions" in house.run("plan", "model=nine", "weights=random", "variant=split_einsum")


@pytest.mark.slow
def test_one_more_rewrite_is_one_module(house):
    """It brings its axis, default and refusals, and is applied to the module or to the conversion."""
    house.write("ane_sweep/worker/rewrites/mirror.py", REWRITE)
    assert house.written == 1
    assert "mirror                 outputs turned over so often (default: 0)" in house.run("help", "keys")
    plain = house.run("plan", *TINY)
    assert "2 cells" in house.run("plan", "-m", *TINY, "mirror=0,2") and "1 conversions" in plain
    assert "mirror=3: must be 2 or less" in " ".join(house.run("plan", *TINY, "mirror=3", code=(2,)).split())
    refused = house.run("plan", *TINY, "mirror=2", "cache=stateful", code=(2,))
    assert "mirror=2 keeps nothing; use cache=none" in refused
    done = house.run("-c", MIRRORED, start=("-P",))
    assert "True True ['common::mirror']" in done


def test_one_more_verb_is_one_file(house):
    house.write("ane_sweep/verbs/greet.py", VERB)
    assert house.written == 1
    assert "  greet " in house.run("--help") and "says hello to somebody" in house.run("--help")
    assert house.run("greet", "Ada") == "hello, Ada\n"
    assert "exit codes:" in house.run("greet", "--help")
    assert "geet: unknown word (did you mean 'greet'?); verbs: " in house.run("geet", code=(2,))


def test_one_more_metric_is_a_row_and_the_stage_that_returns_it(house):
    stage, cosine = "ane_sweep/worker/stages/score.py", '    MetricSpec(name="cosine"'
    row = 'MetricSpec(name="worst_error", better=-1, digits=5, shows=EVERYWHERE)'
    house.replace("ane_sweep/bridge/metrics.py", cosine, f"    {row},\n{cosine}")
    pooled = "        reference, candidate = reference[rows]"
    house.replace(stage, pooled, f"        self.worst = float(abs(reference - candidate).max())\n{pooled}")
    house.replace(stage, "return found\n", 'return [*found, Metric("worst_error", self.worst, "1")]\n')
    assert house.written == 2
    assert house.run("-c", SCORED, start=("-P",)) == "3.0  with worst_error<=2\n"


@pytest.mark.slow
@pytest.mark.ci
def test_one_more_precision_is_one_file(house):
    house.write("conf/precision/half.yaml", "# Half of the weights are zero.\nweights: {kind: sparse, sparsity: 0.5}\n")
    assert house.written == 1
    assert " half," in house.run("help", "precision")
    assert "1 compressions" in house.run("plan", *TINY, "precision=half")


@pytest.mark.slow
def test_one_more_chip_is_one_file(house, tmp_path):
    """Rules and limits follow from its family, also from one that ends in a letter; its estimate from its own rate."""
    table = "ane_sweep/placement/data/chips.json"
    house.replace(table, '  {"chip": "a12"', CHIP + '  {"chip": "a12"')
    house.replace(table, '"devices": {', '"devices": {\n  "m9": ["mac_mini_m9"],')
    assert house.written == 1
    assert "m9        mac_mini_m9" in house.run("devices")
    said = house.run("lint", str(conv_chain(tmp_path / "m.mlpackage", 8)), "--chip", "Mac-mini M9")
    assert "16 ANE, 0 GPU, 0 CPU of 16" in said and "estimated from m9: 12 TFLOP/s" in said


@pytest.mark.slow
def test_one_more_plot_is_one_module_and_its_place_in_the_report(house):
    document = "ane_sweep/report/document.py"
    house.write("ane_sweep/report/numbers.py", PLOT)
    house.replace(document, " machines, off_ane,", " machines, numbers, off_ane,")
    house.replace(
        document, "compare_with_published(sweep", "numbers.section(sweep.cells), compare_with_published(sweep"
    )
    assert house.written == 2
    said = house.run("-c", DRAWN, str(Path(__file__).parent), start=("-P",))
    assert said.startswith("True ['figures/") and said.endswith("-their-numbers.svg']\n")


def test_one_more_benchmark_is_one_module(house):
    shutil.copytree(
        Path(__file__).parent / "bench",
        house.root / "tests/bench",
        ignore=shutil.ignore_patterns("kept", "__pycache__"),
    )
    house.write("tests/bench/nothing.py", BENCH)
    assert house.written == 1
    assert "nothing: how long nothing takes" in house.run("nothing", start=("-P", "-m", "tests.bench"))


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "bench"]


def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def words(node: ast.AST) -> set[str]:
    """Texts that a literal list, tuple, set or mapping (its keys) names."""
    items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    return {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}


# Other things of the same name: scores of placement. And an axis says which stages it enters.
OTHER_THINGS = {"proof/placement/score.py", "bridge/cell.py", "bridge/building.py", "report/card.py"}
# What a stage left, read by the one place that it is for; and what calls it by hand.
ONE_STAGE = {("results/gather.py", "evidence"), ("results/advice.py", "compress")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_list_of_stages_stands_outside_their_modules_and_the_plan(path):
    name = path.relative_to(PACKAGE).as_posix()
    if name == "planner/tasks.py" or name in OTHER_THINGS or name.startswith("bridge/axes/"):
        return
    for node in nodes(path):
        listed = words(node) & ALL.keys()
        assert len(listed) < 2, f"{name}:{getattr(node, 'lineno', 0)} lists {listed}: a field of Stage says it"
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("stage"):
            for other in node.comparators:
                known = isinstance(other, ast.Constant) and other.value in ALL
                assert not known or (name, other.value) in ONE_STAGE, (
                    f"{name}:{node.lineno} asks for {ast.unparse(other)}"
                )


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nobody_asks_for_a_runtime_by_name(path):
    for node in nodes(path):
        assert len(words(node) & RUNTIMES.keys()) < 2, f"{path}:{getattr(node, 'lineno', 0)}: a field of Traits says it"
        if isinstance(node, ast.Compare) and "pipeline" not in ast.unparse(
            node.left
        ):  # of which one is called coreml too
            found = {item.value for item in [node.left, *node.comparators] if isinstance(item, ast.Constant)}
            assert not found & RUNTIMES.keys(), f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_stages_come_in_their_order_and_what_is_no_part_of_a_plan_is_left_out():
    orders = [stage.order for stage in STAGES.values()]
    assert orders == sorted(set(orders)) and set(ALL) - set(STAGES) == {"drift", "generate", "classify"}
    assert traits("a runtime of somebody else").measured == "" and traits(None).coreml is False


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "expected one top-level `STAGE = Stage(name=value, ...)`"),
        ("STAGE = dict(order=1)\n", "expected one top-level `STAGE = Stage(name=value, ...)`"),
        ("STAGE = Stage(order=1, many='x', timeout_s=60 * 60, base_gib=1, per_byte=1)\n", "its values literals (malformed"),
        ("STAGE = Stage(\n    order=1,\n    many='x',\n    timeout_s=1,\n    base_gib=1,\n)\n", "STAGE: per_byte: missing"),
        ("STAGE = Stage(order='1', many='x', timeout_s=1, base_gib=1, per_byte=1)\n", "STAGE: order='1': expected int"),
        ("STAGE = Stage(ordre=1)\n", "STAGE: ordre: nothing reads this; there are: order, many"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_names_the_file_and_what_is_wrong(tmp_path, text: str, wrong: str):
    path = tmp_path / "odd.py"
    path.write_text(f'"""A stage."""\n\n{text}')
    with pytest.raises(ConfigError) as caught:
        declared.read(path, "STAGE", Stage)
    assert any(str(path) in problem and wrong in problem for problem in caught.value.problems)


@pytest.mark.parametrize(("kind", "literal", "known"), [(Stage, "STAGE", ALL), (Traits, "RUNTIME", RUNTIMES)])
def test_an_unknown_name_lists_the_known_ones_and_the_file_to_write(kind: type, literal: str, known: Callable):
    with pytest.raises(
        ConfigError, match=rf"unknown {literal.lower()} 'nope'; known: .*To add it, write ane_sweep/worker/\w+/nope\.py"
    ):
        known["nope"]
    with pytest.raises(ConfigError, match="unknown"):
        known["_helper"]
