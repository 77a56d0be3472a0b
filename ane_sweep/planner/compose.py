"""Composition of words and option files into plain values. Only this module and option_sources.py import Hydra and OmegaConf.

For errors in a user's words or files these raise ValueError, TypeError, RecursionError, AssertionError and more; only
`as_config_error` converts them to a sentence.
"""

import io
import math
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Quote, QuotedString, Sweep
from hydra.core.override_parser.types import IntervalSweep as IntervalSweep
from hydra.core.override_parser.types import Override as Override
from hydra.core.override_parser.types import RangeSweep as RangeSweep
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf

from ane_sweep import outward
from ane_sweep.bridge import plugins, stages
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.errors import ConfigError, nearest
from ane_sweep.planner import help, option_files, options, schema, served, shorthand, unread
from ane_sweep.planner.option_sources import Computed, OptionFiles
from ane_sweep.planner.paths import conf_dir

HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--shell-completion", "-sc")
_NOT_SHOWN = ("config_path", "config_name", "run", "experimental_rerun")  # of Hydra's parser
_ALONE = threading.Lock()
MOST_CHARACTERS = 100_000  # of one word
MOST_LISTED = 2000  # values in brackets in one word: Hydra's parser takes the square of their number


@contextmanager
def as_config_error(what: str) -> Iterator[None]:
    """Raise a ConfigError about `what` for any error of other packages' code that reads a user's words or files."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        deep = isinstance(error, RecursionError)
        raise ConfigError(f"{what}: {'nested too deeply' if deep else option_files.problem(error)}") from None


@contextmanager
def isolate_hydra() -> Iterator[None]:
    """Restore the caller's own Hydra (of a notebook, for example) when this context ends; only one thread composes at a time."""
    with _ALONE:
        theirs = GlobalHydra.instance().hydra
        try:
            yield
        finally:
            GlobalHydra.instance().hydra = theirs


class Composer:
    """A composer of one configuration at a time, by Hydra."""

    def __init__(self, config_dir: str | None = None):
        search_path = create_config_search_path(str(conf_dir()))
        self.own: set[tuple[str, str]] = set()
        for own in help.own_folders(config_dir):
            if not (folder := own.resolve()).is_dir():
                raise ConfigError(
                    f"--config-dir {config_dir}: no such folder; give one that holds model/, precision/ or sweep/"
                )
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="main"))
            self.own |= self._names(folder)
        for added in plugins.folders():
            search_path.prepend("plug-in", f"file://{added}", SearchPathQuery(provider="schema"))
        search_path.prepend("computed", f"{Computed.scheme()}://", SearchPathQuery(provider="schema"))
        GlobalHydra.instance().clear()
        Plugins.instance()  # registers Hydra's own reader, which ours replaces
        SourcesRegistry.instance().types |= {source.scheme(): source for source in (OptionFiles, Computed)}
        ConfigStore.instance().store("limits", {"limits": stages.limits()})
        ConfigStore.instance().store("run", asdict(RunSettings()))
        self.hydra = Hydra.create_main_hydra2("ane-sweep", search_path)
        self.composed: dict[tuple[str, ...], dict[str, object]] = {}  # a search repeats its options

    def options(self, group: str) -> list[str]:
        """Return the names of a group's options, including those in sub-folders (sweep=notebooks/gpt2-family)."""
        loader = self.hydra.config_loader
        plain = [name for name in loader.get_group_options(group) if not name.startswith("_")]
        folders = loader.get_group_options(group, results_filter=ObjectType.GROUP)
        return plain + [f"{folder}/{name}" for folder in folders for name in self.options(f"{group}/{folder}")]

    def has(self, group: str, name: object) -> bool:
        return name in self.options(group) or (group == "model" and served.is_checkpoint(name))

    @staticmethod
    def _names(folder: Path) -> set[tuple[str, str]]:
        computed = options.PALETTES if folder == conf_dir() else ()
        listed = {(group, name) for group in plugins.OPTIONS.values() for name in options.names_in(folder / group)}
        return listed | {("precision", name) for name in computed}

    def refused(self, group: str, name: str) -> str | None:
        """Return the reason why an option of another package cannot be used, or None. The user's own options always can."""
        if (group, name) in self.own:
            return None
        owners = {conf_dir(): "ane-sweep", **plugins.folders()}
        claims = [who for folder, who in owners.items() if (group, name) in self._names(folder)]
        if len(claims) > 1:
            return f"{group}={name} is claimed by {' and by '.join(claims)}: uninstall all but one, or rename it there"
        return plugins.problem("precisions", name, ()) if group == "precision" else None

    def compose(self, overrides: list[str]) -> dict[str, object]:
        """Return the configuration as plain values, with interpolations unresolved. Raises ConfigError."""
        if (known := self.composed.get(tuple(overrides))) is not None:
            return dict(known)
        with as_config_error(" ".join(overrides)[:200] or "conf/config.yaml"):
            plain = _to_plain(self._compose(overrides))
        plain.pop("hydra", None)
        plain["chips"] = shorthand.name_chips(plain["chips"])
        plain["latency"] = shorthand.name_repeats(plain["latency"], lambda: self.compose([])["latency"])
        self.composed[tuple(overrides)] = plain
        return dict(plain)

    def _compose(self, overrides: list[str]) -> DictConfig:
        """Compose as Hydra's load_configuration does, without Hydra's own options: nothing reads them, and they take most of its time."""
        loader = self.hydra.config_loader
        assert isinstance(loader, ConfigLoaderImpl)
        parsed, files = loader._parse_overrides_and_create_caching_repo("config", overrides)
        loader.validate_sweep_overrides_legal(parsed, run_mode=RunMode.RUN, from_shell=True)
        chosen = create_defaults_list(files, "config", parsed, prepend_hydra=False, skip_missing=False)
        config = loader._compose_config_from_defaults_list(chosen.defaults, files)
        OmegaConf.set_struct(config, True)
        loader._apply_overrides_to_config(chosen.config_overrides, config)
        return config

    def problems(self, line: str, options: Sequence[str] = ()) -> list[str]:
        """Return the problems of one override; a key is checked with the chosen `options`, as they decide which keys exist."""
        override = parse([line])[0]
        name = override.key_or_group
        if name in unread.GROUPS and not override.is_delete() and not self.has(name, override.value()):
            return [
                self.refused(name, str(override.value()))
                or unread.unknown_option(name, override.value(), self.options(name))
            ]
        try:
            return schema.problems(resolve(self.compose([*(() if name in unread.GROUPS else options), line])))
        except ConfigError as error:
            if name == "sweep" and not override.is_add():
                return [f"{line}: no matrix is kept in conf/config.yaml, so one is added: +{line}"]
            return [unread.unknown_key(name)] if unread.lacking_key(error) else error.problems

    def values(self, override: Override) -> tuple[int, Iterable[object]]:
        """Return (number, values in order) of an override with several values. Raises ConfigError if they cannot be listed."""
        line, found = override.input_line, override._value
        if isinstance(found, Glob):
            group = override.key_or_group
            if not (listed := self.options(group) if group in unread.GROUPS else help.values(group)):
                groups = ", ".join(unread.GROUPS)
                raise ConfigError(f"{line}: glob() chooses among options of a group ({groups}) or an axis's choices")
            if not (names := found.filter(listed)):
                raise ConfigError(f"{line}: matches none; choices: {nearest(line, listed, f'ane-sweep help {group}')}")
            return len(names), names
        if isinstance(found, IntervalSweep):
            raise ConfigError(
                f"{line}: an interval has no list of values; write choices or range(...), or search it: ane-sweep best"
            )
        count = range_size(found, line) if isinstance(found, RangeSweep) else len(getattr(found, "list", ()))
        if any(isinstance(value, Sweep) for value in getattr(found, "list", ())):
            raise ConfigError(f"{line}: a list of values cannot stand inside another one")
        if not count:
            raise ConfigError(f"{line}: no values; the end of a range is not among them")
        if count > (most := int(schema.KEYS["max_cells"].most or 0)):  # not even shuffled: that lists them
            raise ConfigError(f"{line}: {count:,} values; no matrix has more than {most:,} cells")
        return count, override.sweep_iterator(transformer=Override._convert_value)

    def expand_globs(self, key: str, values: Iterable[object]) -> list[object]:
        """Return a saved matrix's values of an axis, each `glob(...)` replaced by its choices. Raises ConfigError."""
        found: list[object] = []
        for value in values:
            found += self.values(parse([f"{key}={value}"])[0])[1] if str(value).startswith("glob(") else [value]
        return found


def range_size(found: RangeSweep, line: str | None) -> int:
    """Return the length of a range without listing it."""
    numbers = (found.start, found.stop, found.step)
    if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers) or not found.step:
        raise ConfigError(f"{line}: expected range(start,stop,step) of finite numbers, and a step other than 0")
    start, stop, step = (Fraction(number) for number in numbers if number is not None)
    return max(0, math.ceil((stop - start) / step))


def parse(lines: Iterable[str]) -> list[Override]:
    """Parse overrides in Hydra's grammar. Raises ConfigError with every line that is malformed or unsupported here."""
    parser = OverridesParser.create()
    parsed, found = [], []
    for typed in lines:
        if problem := shorthand.odd_repeats(typed):
            found.append(problem)
            continue
        line = shorthand.expand_short_key(typed)
        if len(line) > MOST_CHARACTERS or (line.count(",") > MOST_LISTED and any(c in line for c in "[{(")):
            found.append(f"{line[:40]}...: {len(line):,} characters are a long word; write it in a file of options")
            continue
        form = "The form is key=value, key=a,b,c with -m, +key=value or ~key; text with other signs is key='...'"
        if "=" not in line and not line.startswith("~"):
            found.append(f"{line}: no key=value. {form}")
            continue
        try:
            override = _parsed(parser, line)
        except ConfigError as error:
            found += [f"{problem}. {form}" for problem in error.problems]
            continue
        name = override.key_or_group
        if override.is_hydra_override() or name == "hydra":
            found.append(unread.hydras(name))
        elif override.package is not None:
            found.append(f"{line}: no key stands in a package (@) here; leave @{override.package} out")
        parsed.append(override)
    if found:
        raise ConfigError(found)
    return parsed


def _parsed(parser: OverridesParser, line: str) -> Override:
    """Return one parsed override. An unquoted path with characters outside the grammar (~, #, non-English letters) counts as text."""
    try:
        with as_config_error(line[:200]):
            return parser.parse_override(line)
    except ConfigError:
        key, _, value = line.partition("=")
        if not re.fullmatch(r"[^,'\"()\[\]{}\\$]+", value):
            raise
    with as_config_error(line[:200]):
        return parser.parse_override(f"{key}='{value}'")


def as_text(value: object) -> str:
    """Return a value as text in Hydra's grammar."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list):
        return f"[{','.join(map(as_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{as_text(key)}:{as_text(one)}' for key, one in value.items())}}}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def resolve(config: dict[str, object]) -> dict[str, object]:
    """Return the configuration with its interpolations resolved. Raises ConfigError."""
    if (plain := shorthand.follow(config)) is not None:
        return plain
    with as_config_error("an interpolation ${...}"):
        return _to_plain(OmegaConf.create(config), resolve=True)


def _to_plain(config: Container, resolve: bool = False) -> dict[str, object]:
    plain = OmegaConf.to_container(config, resolve=resolve)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


def pass_to_hydra(args: list[str]) -> bool:
    """Let Hydra answer its own flags (--cfg, --info ...), with our order of options; return True if it did."""
    if not any(arg.split("=")[0] in HYDRA_FLAGS for arg in args):
        return False
    if "-m" in args or "--multirun" in args:
        raise ConfigError("--cfg and --info show one configuration: leave out -m, and give each key one value")
    parser = get_args_parser()
    parser.prog = "ane-sweep"
    given = parser.parse_args(args)
    if foreign := [name for name in _NOT_SHOWN if getattr(given, name)]:
        raise ConfigError([f"--{name.replace('_', '-')}: beside --cfg and --info nothing reads it" for name in foreign])
    composer = Composer(given.config_dir)
    words = [str(one.input_line) for one in parse(given.overrides)]
    try:  # what cannot be composed is said by us; Hydra has tracebacks for it
        composer.compose(words)
    except ConfigError as error:
        raise ConfigError([one for word in words for one in composer.problems(word)] or error.problems) from None
    for note in help.own_notes(given.config_dir):
        print(f"note: {note}", file=sys.stderr)
    if given.hydra_help:
        composer.hydra.hydra_help("config", parser, given)
    elif given.cfg:
        with redirect_stdout(io.StringIO()) as shown:
            composer.hydra.show_cfg("config", words, given.cfg, given.package, given.resolve)
        print(outward.mask_credentials(shown.getvalue()), end="")
    elif given.info:
        composer.hydra.show_info(given.info, "config", words)
    else:
        composer.hydra.shell_completion("config", words)
    GlobalHydra.instance().clear()
    return True
