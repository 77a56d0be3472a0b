"""The rewrites that a model can undergo before its conversion: one module each in worker/rewrites; the module's name is
an axis. Those of converted programs (fix/rewrites) are names of one axis, `rewrite`. Standard library only.

REWRITE = Rewrite(order=20, help="...", plain="none", choices=("none", "negative"), changes="program")
"""

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Literal

from ane_sweep.bridge.axes import RUNS, Asked, Only, axis
from ane_sweep.bridge.declared import Declared, folder, modules
from ane_sweep.bridge.kinds import tasks_with

IN_TORCH = ("convert", RUNS)  # the stages that build the torch module
OF_POSITIONS = tasks_with(lambda kind: kind.length == "seq_len")
FOR_DECODERS = "{name}={value} is for decoders; {model} is of task {task}, which "
_OF_BLOCKS = Only(
    "task",
    tasks_with(lambda kind: kind.blocks != "none"),
    "{name}={value} is for the models of blocks that are built here, and {model} is of task {task}; leave it out",
)
_OF_TEXTS = Only(
    "task",
    OF_POSITIONS,
    "{name}={value} is built for models that take seq_len tokens; {model} is of task {task}, whose input has one size; leave it out",
)
_DECODERS = Only("task", tasks_with(lambda kind: kind.causal), f"{FOR_DECODERS}has no causal mask and head")
MODELS = {"blocks": (_OF_BLOCKS,), "texts": (_OF_BLOCKS, _OF_TEXTS), "decoders": (_OF_BLOCKS, _OF_TEXTS, _DECODERS)}


@dataclass(frozen=True)
class Rewrite:
    """The declaration of a rewrite, read from its module without an import.

    order    its rank in the order of rewrites
    help     its line in --help
    plain    the value that leaves the model unchanged; the default if conf/config.yaml sets none
    changes  the thing it changes: the torch "module", or only the converted "program"
    choices  its values; without them it is a whole number from `plain` to `most`, and `why` is the reason for that
             limit
    models   the models that can undergo it: all of "blocks", those of "texts", or "decoders"
    only     the permitted pairs of values, as fields of axes.Only
    pads     whether the sequence inside the program is padded to a multiple of its value
    """

    order: int
    help: str
    plain: int | str
    changes: Literal["module", "program"]
    choices: tuple[object, ...] = ()
    most: int | None = None
    why: str = ""
    models: Literal["blocks", "texts", "decoders"] = "blocks"
    only: tuple[dict[str, object], ...] = ()
    pads: bool = False


REWRITES = Declared("ane_sweep.worker.rewrites", "REWRITE", Rewrite, lambda rewrite: rewrite.order)

NO_REWRITE = "none"
KINDS_OF_PROGRAMS = {"ane": "placement", "accurate": "accuracy"}  # values of the axis -> kind of the rewrites of fix
OF_PROGRAMS = (
    NO_REWRITE, *KINDS_OF_PROGRAMS, "all", *(path.stem for path in modules(folder("ane_sweep.fix.rewrites"))),
)  # fmt: skip


def round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple if multiple else length


def make_axes() -> type:
    """Return a dataclass with one axis for each rewrite, in order."""
    return make_dataclass(
        "RewriteAxes",
        [
            (
                name,
                type(one.plain),
                axis(
                    one.help,
                    choices=one.choices,
                    least=None if one.most is None else int(one.plain),
                    most=one.most,
                    why=one.why,
                    plain=one.plain,
                    enters=IN_TORCH if one.changes == "module" else ("convert",),
                    only=(*MODELS[one.models], *(_permit(pair) for pair in one.only)),
                    refuses=partial(_refuse_length, name) if one.pads else None,
                ),
            )
            for name, one in REWRITES.items()
        ],
        frozen=True,
    )


def _permit(pair: Mapping[str, object]) -> Only:
    among, when = (value if isinstance(value := pair.get(name), tuple) else () for name in ("among", "when"))
    return Only(str(pair["other"]), among, str(pair["why"]), when)


def _refuse_length(name: str, asked: Asked) -> str | None:
    multiple, seq_len, longest = asked[name], asked["seq_len"], asked["longest"]
    if multiple and (inside := round_up(seq_len, multiple)) > longest:
        return f"{name}={multiple} makes seq_len={seq_len} {inside} inside, beyond the {longest} positions of {asked['model']}"
    return None


def plain_values() -> Mapping[str, int | str]:
    return {name: one.plain for name, one in REWRITES.items()}
