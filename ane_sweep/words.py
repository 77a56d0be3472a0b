"""The grammar of a verb's words: flags, plain words and `key=value`, with their help. Nothing heavy."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from textwrap import wrap
from typing import NamedTuple, NoReturn

from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import BAD_CONFIGURATION, EXIT_CODES, INTERRUPTED, OK, asks_help, columns


class Word(NamedTuple):
    """One `key=value` of a verb."""

    shown: str
    help: str
    read: Callable[[str], object]
    default: object


class Parser(argparse.ArgumentParser):
    """A verb's words: flags and plain words as argparse reads them, and `key=value`. A wrong word raises ConfigError.

    usage    what follows `ane-sweep`: the verb, and its words
    what     what the verb does
    exits    exit code -> what it means here, where that is not what EXIT_CODES says
    """

    def __init__(self, usage: str, what: str, example: str, exits: Mapping[int, str] | None = None) -> None:
        verb = usage.partition(" ")[0]
        super().__init__(
            f"ane-sweep {verb if verb.isalpha() else ''}".rstrip(), f"ane-sweep {usage}", allow_abbrev=False
        )
        self.what, self.example = what, example
        self.exits = {code: EXIT_CODES[code] for code in (OK, BAD_CONFIGURATION, INTERRUPTED)} | dict(exits or {})
        self.keys: dict[str, Word] = {}
        self.takes_matrix = False

    def add(
        self, shown: str, help: str, read: Callable[[str], object] = str, default: object = None,
        *, nargs: str | None = None, action: str = "store", choices: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Add a word as the help shows it: a flag `--watch`, an option `--drift N`, a plain word `model MODEL` or a key `uri=URI`.

        Its value is an attribute of the result of `read`. `a|b` in place of N are the choices; the help ends with the default.
        A ValueError of `read` says what was expected. A text as default is read as the user's words are.
        """
        if default not in (None, []) and "(default" not in help:
            help += f" (default: {default})"
        words = shown.split()
        names = [word.rstrip(",") for word in words if word.startswith("-")] or words[:1]
        metavar = " ".join(words[len(names) :])
        if "=" in names[0]:
            self.keys[names[0].partition("=")[0]] = Word(shown, help, read, default)
        elif not metavar:
            self.add_argument(*names, action="store_true", help=help)
        else:
            choices = choices or (metavar.split("|") if "|" in metavar else None)
            self.add_argument(
                *names, action=action, type=read, help=help, default=default, nargs=nargs, choices=choices, metavar=metavar,
            )  # fmt: skip

    def json(self, holds: str, instead: str) -> None:
        """Add --json, which prints the result as one object with `schema` and the keys in `holds`."""
        self.add("--json", f"one JSON object: {holds} (default: {instead})")

    def matrix(self) -> None:
        """Accept the keys of a sweep as well: `read` returns them as `matrix`, for config.load."""
        self.takes_matrix = True
        self.add("--config-dir DIR", "a folder of your own options (default: ./conf, if it is there)")

    def outputs(self) -> None:
        self.add("out=PATH", "the outputs folder (default: $ANE_SWEEP_OUT, or ./outputs)", outputs_folder, "")

    def read(self, args: Sequence[str]) -> argparse.Namespace:
        """Return the words as attributes. If --help is among them, print the help and raise SystemExit(0)."""
        if asks_help(args):
            print(self.format_help())
            raise SystemExit(OK)
        given, rest, matrix = {}, [], []
        for arg in args:
            name, equals, value = arg.partition("=")
            if equals and name in self.keys:
                try:
                    given[name] = self.keys[name].read(value)
                except ValueError as error:
                    raise ConfigError(f"{arg}: expected {error}") from None
            elif self.takes_matrix and equals and name[:1] != "-" and ":" not in name:
                matrix.append(arg)
            else:
                rest.append(arg)
        found, unknown = self.parse_known_intermixed_args(rest)
        if self.keys:  # RUN:axis=value names cells of a run
            plain = chain.from_iterable(
                value if isinstance(value, list) else [value]
                for value in (getattr(found, action.dest) for action in self._get_positional_actions())
            )
            unknown += [w for w in plain if isinstance(w, str) and "=" in w and ":" not in w.partition("=")[0]]
        if unknown:
            raise ConfigError(self._unknown(next((word for word in unknown if word.startswith("-")), unknown[0])))
        if self.takes_matrix:
            found.matrix = [*matrix, *(["--config-dir", found.config_dir] if found.config_dir else [])]
        for name, word in self.keys.items():
            default = word.read(word.default) if isinstance(word.default, str) else word.default
            setattr(found, name.replace("-", "_"), given.get(name, default))
        return found

    def _unknown(self, word: str) -> str:
        if "=" not in word and not word.startswith("-"):
            return f"{word}: unknown here; {self.usage}"
        flags = self._option_string_actions.keys() - {"-h", "--help"}
        known = sorted([*flags, *(word.shown for word in self.keys.values())])
        name, equals, _ = word.partition("=")
        meant = suggestion(name + equals, [*flags, *(f"{key}=" for key in self.keys)])
        return f"{word}: unknown here{meant}; known: {', '.join(known) or 'nothing'}"

    def _get_value(self, action: argparse.Action, text: str) -> object:
        try:
            return action.type(text) if callable(action.type) else text
        except ValueError as error:
            raise argparse.ArgumentError(action, f"{text}: expected {error}") from None

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            problem = f"{value}: unknown{suggestion(value, choices)}; choices: {', '.join(choices)}"
            raise argparse.ArgumentError(action, problem)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}; {self.usage}")

    def format_help(self) -> str:
        lines = [f"usage: {self.usage}", "", *wrap(self.what, min(100, columns())), "", *self.words()]
        lines += ["", "exit codes:", *(f"  {code:<4} {self.exits[code]}" for code in sorted(self.exits))]
        return "\n".join([*lines, "", "example:", f"  {self.example}"])

    def words(self) -> list[str]:
        """Return one or more lines of help for every word, flag and key."""
        rows = [
            (", ".join(action.option_strings) + f" {action.metavar or ''}", action.help or "")
            for action in sorted(self._actions, key=lambda action: bool(action.option_strings))
            if action.dest != "help"
        ]
        rows += [(word.shown, word.help) for word in self.keys.values()]
        rows.append(("-h, --help", "this text, and nothing else"))
        wide = max(len(shown.strip()) for shown, _ in rows) + 4
        return [
            line
            for shown, help in rows
            for line in wrap(
                help, min(116, columns()), initial_indent=f"  {shown.strip()}".ljust(wide), subsequent_indent=" " * wide
            )
        ]


def make_number_reader(expected: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    """Return a reader of finite numbers that `fits` accepts. It raises ValueError with the expected form."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if math.isfinite(value := float(text)) and fits(value):
                return value
        raise ValueError(expected)

    return read


def make_integer_reader(least: int, most: float = math.inf, what: str = "a whole number") -> Callable[[str], int]:
    """Return a reader of whole numbers. It raises ValueError with the expected form."""

    def read(text: str) -> int:
        if text.isascii() and text.isdecimal() and len(text) < 1000 and least <= int(text) <= most:
            return int(text)
        raise ValueError(f"{what} of {least} or more" if most == math.inf else f"{what} from {least} to {most:,}")

    return read


def read_names(text: str) -> tuple[str, ...]:
    """Return names between commas. Raises ValueError for a text without a name."""
    if names := tuple(part for part in text.split(",") if part):
        return names
    raise ValueError("names; it needs a value")


amount = make_number_reader("a number of 0 or more", lambda value: value >= 0)
above_zero = make_number_reader("a number above 0", lambda value: value > 0)
RUN = "a run's name, or last (default: last)"
