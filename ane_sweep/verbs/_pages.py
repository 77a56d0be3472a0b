"""The first pages for a new user: that of a bare `ane-sweep`, and its short help. The module imports next to nothing,
so that both are there as soon as Python is; tests hold the defaults against conf/config.yaml. And the request that the
words of a verb make, for all verbs that take a matrix."""

from typing import TYPE_CHECKING

from ane_sweep import verbs
from ane_sweep.terminal import SWEEP_EXITS, asks_help

if TYPE_CHECKING:
    from ane_sweep.planner.matrix import Request

START = """ane-sweep runs a matrix of Core ML experiments: every cell is converted, cut, run,
scored and logged.

Type first:
  ane-sweep doctor                        what this host can do, and what is missing
  ane-sweep plan model=minilm             what one cell would cost; nothing runs
  ane-sweep model=minilm                  one cell: table, report, page in MLflow
  ane-sweep -m model=minilm chunks=1,2    a matrix: all combinations of the lists
  ane-sweep lint PACKAGE                  which ops of any package stay off the
                                          Neural Engine, and why
Then:
  ane-sweep list                          the sweeps that are here
  ane-sweep report --html FILE            the report of the last one
  ane-sweep get last DIR                  its package, and how to load it

ane-sweep --help: everyday keys, verbs, exit codes.
ane-sweep help: topics to read."""
# (key, what, default)
EVERYDAY = (
    ("model", "what is converted; `ane-sweep help model` lists all", "minilm"),
    ("variant", "original, or split_einsum (Neural Engine form)", "original"),
    ("chunks", "how many programs it is cut into, or auto", 1),
    ("precision", "`ane-sweep help precision` lists all", "fp16"),
    ("compute_units", "all, cpu_only, cpu_and_gpu, cpu_and_ne", "all"),
    ("seq_len", "tokens of an input", 128),
    ("target", "the oldest OS that shall load it", "iOS18"),
    ("runtime", "auto is coreml on a Mac, else reference", "auto"),
    ("weights", "pretrained, random, or a checkpoint's folder", "pretrained"),
    ("out", "outputs; null: $ANE_SWEEP_OUT or ./outputs", None),
)


def short() -> str:
    """Return the text of `ane-sweep --help`."""
    return "\n".join(
        [
            "usage: ane-sweep [-m] KEY=VALUE[,VALUE...]... [+sweep=NAME] [--config-dir DIR]",
            "       ane-sweep VERB ...",
            "Run a matrix, a cell for each combination; asked again, it goes on where it ended.",
            "",
            *everyday(),
            "  -m, --multirun     every combination of the lists given (default: one cell)",
            "  +sweep=NAME        a matrix kept in conf/sweep/ (default: none)",
            "  --config-dir DIR   a folder of your own options (default: ./conf, if it is there)",
            "  --json             one JSON object: sweep, folder, code, statuses, records",
            "                     (default: text)",
            "  --cfg job          print the composed configuration; --hydra-help: Hydra's flags",
            "",
            "verbs, each with its own --help:",
            *verbs.lines(),
            "",
            "exit codes:",
            *(f"  {code:<4} {text}" for code, text in sorted(SWEEP_EXITS.items())),
            "",
            "example:",
            "  ane-sweep -m model=minilm variant=original,split_einsum chunks=1,2",
        ]
    )


def everyday() -> list[str]:
    rows = [f"  {key:<16} {what} ({'null' if plain is None else plain})".rstrip() for key, what, plain in EVERYDAY]
    return ["everyday keys, with their defaults (`ane-sweep help keys` has all):", *rows]


def read_request(args: list[str], verb: str) -> "Request | None":
    """Return the request in the words, or None if they only ask for help, or for Hydra's own information."""
    if asks_help(args):
        if verb == "sweep":
            print(short())
        else:
            from ane_sweep.planner import help

            print(help.grammar(verb).format_help(), *everyday(), sep="\n")
        return None
    from ane_sweep.planner import config

    return None if config.pass_to_hydra(args) else config.load(args)
