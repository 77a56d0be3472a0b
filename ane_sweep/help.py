"""`ane-sweep --help`, from the tables that also check a configuration. Imports nothing heavy."""

from itertools import pairwise
from pathlib import Path
from textwrap import wrap

from ane_sweep import schema
from ane_sweep.cell import AXES
from ane_sweep.paths import conf_dir

USAGE = """ane-sweep: run an experiment matrix over Core ML programs, each task in a fresh process

  ane-sweep model=minilm                                one cell
  ane-sweep -m model=gpt2,gpt2-xl chunks=1,2,4          a matrix (Hydra's grammar: a,b  range()  glob()  'quoted'  +key  ~key)
  ane-sweep -m +sweep=quick                             a matrix kept in conf/sweep/
  ane-sweep plan -m model=gpt2 chunks=1,2,4             what would run, what is shared, what it costs
  ane-sweep report [--json|--markdown] [RUN]            a sweep's table or records; --html FILE, --drift: see the README
  ane-sweep compare A B [--json] [--across-hosts]       what changed; A and B: a run, last, good, a path; each with :axis=value
  ane-sweep history [N] [--json]                        steps in the latency of each cell over the last N runs
  ane-sweep nightly [accept [RUN] | write KIND FOLDER]  what the nights did; a new level; files for systemd, launchd, cron, github
  ane-sweep log [RUN] [uri=URI] [experiment=NAME]       send stored records to a tracking server
  ane-sweep export [RUN] FILE | import FILE             a sweep as one file that merges into another store once
  ane-sweep prune older-than-days=N | max-gb=N          delete cached artifacts
  ane-sweep lint PACKAGE... --chip m4 [--compute-units cpu_and_ne] [--json]    where its ops would run, and why not on the ANE
  ane-sweep run PACKAGE --input x.npy                   one prediction of any ML Program, on any host
  ane-sweep diff A B [--min-psnr DB]                    two packages: their outputs, and the drift of each op
  ane-sweep devices                                     the chips that placement is predicted for
  ane-sweep doctor [--json] [uri=URI]                   what this host can and cannot do, and how to get what is missing
  ane-sweep version

  --config-dir DIR    a folder of your own options: model/NAME.yaml, precision/NAME.yaml, sweep/NAME.yaml
  --cfg job           the composed configuration      --hydra-help    Hydra's own flags
"""


def text(args: list[str]) -> str:
    """The whole help text; options of the groups are listed from the folders."""
    folders = [conf_dir(), *(Path(folder) for folder in _config_dirs(args))]
    lines = [USAGE, "axes (a cell is one value of each):"]
    for axis in AXES:
        if axis in schema.GROUP_KEYS:
            lines += _listed(axis, _options(folders, axis))
        else:
            lines.append(_line(axis))
    lines += [
        "",
        *_listed("+sweep=NAME", _options(folders, "sweep")),
        "",
        "settings:",
    ]
    lines += [_line(key) for key in schema.KEYS if key not in AXES and not key.startswith("limits.")]
    stages = ",".join(schema.STAGES)
    lines.append(f"  limits.STAGE.timeout_s, limits.STAGE.memory_gib    per task; STAGE: {stages}")
    return "\n".join(lines)


def _line(key: str) -> str:
    entry = schema.KEYS[key]
    choices = f" ({', '.join(map(str, entry.choices))})" if entry.choices else ""
    return f"  {key:<22} {entry.help}{choices}"


def _listed(name: str, options: list[str]) -> list[str]:
    text = f"  {name:<22} one of: {', '.join(options) or 'none'}"
    return wrap(text, 118, subsequent_indent=" " * 25, drop_whitespace=True, break_on_hyphens=False)


def _options(folders: list[Path], group: str) -> list[str]:
    """Names as they are typed: of an option in a folder of its own, `notebooks/gpt2-family`."""
    roots = [folder / group for folder in folders]
    names = {path.relative_to(root).with_suffix("").as_posix() for root in roots for path in root.rglob("*.yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def _config_dirs(args: list[str]) -> list[str]:
    """Values of --config-dir, in both spellings."""
    return [arg.split("=", 1)[1] for arg in args if arg.startswith("--config-dir=")] + [
        value for flag, value in pairwise(args) if flag in ("--config-dir", "-cd")
    ]
