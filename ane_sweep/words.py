"""The grammar of a verb's words: flags, plain words and `key=value`, with their help. Nothing heavy."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import NoReturn

from ane_sweep.errors import ConfigError, suggestion
from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import BAD_CONFIGURATION, EXIT_CODES, INTERRUPTED, OK, asks_help, columns


@dataclass(frozen=True)
class Word:
    """One `key=value` of a verb."""

    shown: str
    help: str
    read: Callable[[str], object]
    default: Callable[[], object]


class Parser(argparse.ArgumentParser):
    """A verb's words: flags and plain words as argparse reads them, and `key=value`. A wrong word raises ConfigError.

    usage    what follows `ane-sweep VERB`
    what     what the verb does
    exits    exit code -> what it means here, where that is not what EXIT_CODES says
    """

    def __init__(self, verb: str, usage: str, what: str, example: str, exits: Mapping[int, str] | None = None) -> None:
        super().__init__(
            f"ane-sweep {verb}".rstrip(), " ".join(f"ane-sweep {verb} {usage}".split()), allow_abbrev=False
        )
        self.what, self.example = what, example
        always = (OK, BAD_CONFIGURATION, INTERRUPTED)
        self.exits = {code: EXIT_CODES[code] for code in always} | dict(exits or {})
        self.keys: dict[str, Word] = {}
        self.takes_matrix = False

    def key(
        self,
        name: str,
        metavar: str,
        help: str,
        read: Callable[[str], object] = str,
        default: Callable[[], object] | None = None,
    ) -> None:
        """Add a word `name=value`; its value, or its default, is an attribute of the result of `read`."""
        self.keys[name] = Word(f"{name}={metavar}", help, read, default or (lambda: None))

    def json(self, holds: str, instead: str) -> None:
        """Add --json, which prints the result as one object with `schema` and the keys that `holds` names."""
        self.add_argument("--json", action="store_true", help=f"one JSON object: {holds} (default: {instead})")

    def matrix(self) -> None:
        """Accept the keys of a sweep as well: the result of `read` has them as `matrix`, for config.load."""
        self.takes_matrix = True
        self.add_argument(
            "--config-dir", metavar="DIR", help="a folder of your own options (default: ./conf, if it is there)"
        )

    def outputs(self) -> None:
        shown = "the outputs folder (default: $ANE_SWEEP_OUT, or ./outputs)"
        self.key("out", "PATH", shown, outputs_folder, lambda: outputs_folder(None))

    def read(self, args: Sequence[str]) -> argparse.Namespace:
        """Return the words as attributes. With --help anywhere among them, print the help and raise SystemExit(0)."""
        if asks_help(args):
            print(self.format_help())
            raise SystemExit(OK)
        given, rest, matrix = {}, [], []
        for arg in args:
            name, equals, value = arg.partition("=")
            if equals and name in self.keys:
                given[name] = self._value(name, value)
            elif self.takes_matrix and equals and name[:1] != "-" and ":" not in name:
                matrix.append(arg)
            else:
                rest.append(arg)
        found, unknown = self.parse_known_intermixed_args(rest)
        if self.keys:  # RUN:axis=value names cells of a run
            unknown += [word for word in self._words(found) if "=" in word and ":" not in word.partition("=")[0]]
        if unknown:
            raise ConfigError(self._unknown(next((word for word in unknown if word.startswith("-")), unknown[0])))
        if self.takes_matrix:
            found.matrix = [*matrix, *(["--config-dir", found.config_dir] if found.config_dir else [])]
        for name, word in self.keys.items():
            setattr(found, name.replace("-", "_"), given[name] if name in given else word.default())
        return found

    def _words(self, found: argparse.Namespace) -> list[str]:
        """Return the plain words of all positional arguments."""
        values = [getattr(found, action.dest) for action in self._get_positional_actions()]
        return [
            word
            for value in values
            for word in (value if isinstance(value, list) else [value])
            if isinstance(word, str)
        ]

    def _unknown(self, word: str) -> str:
        if "=" not in word and not word.startswith("-"):
            return f"{word}: unknown here; {self.usage}"
        flags = self._option_string_actions.keys() - {"-h", "--help"}
        known = sorted([*flags, *(word.shown for word in self.keys.values())])
        name, equals, _ = word.partition("=")
        meant = suggestion(name + equals, [*flags, *(f"{key}=" for key in self.keys)])
        return f"{word}: unknown here{meant}; known: {', '.join(known) or 'nothing'}"

    def _value(self, name: str, text: str) -> object:
        try:
            return self.keys[name].read(text)
        except ValueError as error:
            raise ConfigError(f"{name}={text}: expected {error}") from None

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


def amount(text: str) -> float:
    """Return a finite number that is not negative. Raises ValueError with the expected form."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError("a number of 0 or more")
    return value


RUN = "a run's name, or last (default: last)"
