"""`ane-sweep completion bash|zsh|fish`: what a shell sources to complete verbs, keys, options and runs"""

import re
from collections.abc import Iterable
from pathlib import Path

from ane_sweep import verbs
from ane_sweep.folders import outputs_folder
from ane_sweep.terminal import OK

SHELLS = ("bash", "zsh", "fish")
_LINES = {
    "bash": """_ane_sweep() {
  local words=("${COMP_WORDS[@]:1:COMP_CWORD-1}") line="${COMP_LINE:0:COMP_POINT}" IFS=$'\\n' found
  local last="${line##*[[:space:]]}"
  found=($(ane-sweep completion words -- "${words[@]}" "$last" 2>/dev/null))
  local cut="${last%"${last##*[=:]}"}"  # = and : break words in bash: what stands before them is there already
  COMPREPLY=("${found[@]#"$cut"}")
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  return 0
}
complete -o default -F _ane_sweep ane-sweep""",
    "zsh": """#compdef ane-sweep
_ane_sweep() {
  local -a found
  found=(${(f)"$(ane-sweep completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -Q -S '' -- $found; else _files; fi
}
compdef _ane_sweep ane-sweep""",
    "fish": """function __ane_sweep_words
  ane-sweep completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c ane-sweep -a '(__ane_sweep_words)'""",
}
RUNS = ("report", "compare", "export", "log", "get")  # verbs that take a run first
_SHARED = {"diff": "run.py", "generate": "_talk.py"}  # where more words of a verb stand
_SHARED["classify"] = _SHARED["generate"]
FLAGS = ("-m", "--multirun", "--config-dir", "--help")


def completion(args: list[str]) -> int:
    """Print the lines for a shell, or the completions of the last word. Raises ConfigError for another shell."""
    if args[:2] == ["words", "--"]:  # asked by those lines at each Tab, so nothing is imported that could be left out
        print(*words(args[2:] or [""]), sep="\n")
        return OK
    from ane_sweep.words import Parser

    parser = Parser(
        "completion bash|zsh|fish",
        "Lines for a shell to source: they complete verbs, keys, their values (models, precisions, ...) and runs. bash, in "
        '~/.bashrc: eval "$(ane-sweep completion bash)"; zsh, after compinit: the same with zsh; fish: ane-sweep completion '
        "fish | source.",
        "ane-sweep completion bash",
    )
    parser.add("shell bash|zsh|fish", "the shell (no default)")
    print(_LINES[parser.read(args).shell])
    return OK


def words(line: list[str]) -> list[str]:
    """Return the completions of the last word of a line."""
    *before, last = line
    if not before and "=" not in last and not last.startswith("-"):
        return _beginning([*verbs.names(), *_keys()], last)
    verb = before[0] if before and before[0] in verbs.names() else "sweep"
    if verb in ("sweep", "plan"):
        return _of_a_matrix(last)
    if last.startswith("-"):
        return _beginning(_flags(verb), last)
    if verb == "help":
        from ane_sweep.verbs.help import DOCS

        return _beginning([*(path.stem for path in DOCS.glob("*.md")), "keys", *(k.rstrip("=") for k in _keys())], last)
    if verb == "completion":
        return _beginning(SHELLS, last)
    talks = _SHARED.get(verb) == "_talk.py"  # and takes the keys of a sweep as well
    if talks and "=" in last:
        return _of_a_matrix(last)
    return _beginning(["last", *_stamps(before), *(_keys() if talks else ())], last) if talks or verb in RUNS else []


def _of_a_matrix(last: str) -> list[str]:
    """Return the completions of a key, or of the last value in a key's list."""
    from ane_sweep.planner import help

    if last.startswith("-"):
        return _beginning(FLAGS, last)
    key, equals, value = last.partition("=")
    if not equals:
        return _beginning(_keys(), last)
    given, comma, typed = value.rpartition(",")
    taken = given.split(",") if given else []
    values = [one for one in help.values(key.lstrip("+~")) if one not in taken]
    return [f"{key}={given}{comma}{one}" for one in _beginning(values, typed)]


def _keys() -> list[str]:
    from ane_sweep.planner import help

    return [f"{'+' if name == 'sweep' else ''}{name}=" for name in help.names()]


def _flags(verb: str) -> list[str]:
    """Return the flags of a verb's parser, read from the verb's source without importing it."""
    folder = Path(verbs.__file__).parent
    names = (f"{verb}.py", f"{verb}_.py", f"{verb}/__init__.py", *([_SHARED[verb]] if verb in _SHARED else []))
    text = "".join((folder / name).read_text(encoding="utf-8") for name in names if (folder / name).exists())
    return ["--help", *(["--json"] if ".json(" in text else []), *re.findall(r'\.add\(\s*"(?:-o, )?(--[a-z-]+)', text)]


def _stamps(before: list[str]) -> Iterable[str]:
    """Return the names of runs, by their folders, newest first."""
    out = outputs_folder(next((word[4:] for word in before if word.startswith("out=")), None))
    return sorted((path.parent.name for path in out.glob("runs/*/run.json")), reverse=True)


def _beginning(found: Iterable[str], start: str) -> list[str]:
    return list(dict.fromkeys(word for word in found if word.startswith(start)))
