"""docs/installing.md lists what the code reads of the environment, and nothing of ours that it does not."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LISTED = set(re.findall(r"`([A-Z][A-Z_]+[A-Z])`", (ROOT / "ane_sweep" / "docs" / "installing.md").read_text("utf-8")))
TREES = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "ane_sweep").rglob("*.py")]
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
OWN = re.compile(r"ANE_SWEEP_[A-Z_]+")


def strings(node: ast.AST) -> set[str]:
    texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return {text for text in texts if VARIABLE.fullmatch(text)}


def constants() -> dict[str, set[str]]:
    """Name -> the variables that it stands for, of all assignments at the top of a module."""
    found: dict[str, set[str]] = {}
    for tree in TREES:
        for node in tree.body:
            if isinstance(node, ast.Assign):
                names, values = node.targets[0], node.value
                if isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple):
                    pairs = list(zip(names.elts, values.elts))
                else:
                    pairs = [(names, values)] if isinstance(names, ast.Name) else []
                for name, value in pairs:
                    found.setdefault(name.id, set()).update(strings(value))
    return found


def is_environ(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in ("environ", "getenv")


def asked(tree: ast.AST) -> list[ast.AST]:
    """What stands for a name where the environment is read: environ[X], environ.get(X), environ(X), X in environ."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_environ(node.value):
            found.append(node.slice)
        elif isinstance(node, ast.Call) and node.args:
            reads = is_environ(node.func) or (isinstance(node.func, ast.Attribute) and is_environ(node.func.value))
            found += node.args[:1] if reads else []
        elif isinstance(node, ast.Compare) and is_environ(node.comparators[0]):
            found.append(node.left)
    return found


def read() -> set[str]:
    known = constants()
    names = set()
    for tree in TREES:
        nodes = asked(tree)
        names |= set().union(*map(strings, nodes), set())
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                names |= known.get(getattr(node, "attr", getattr(node, "id", "")), set())
            if isinstance(node, ast.Name) and node.id == "name":  # a loop over a tuple of them
                names |= known["LOGIN"] | known["WAITING_VARIABLES"]
    return names


def test_whatever_the_code_reads_is_listed():
    found = read()
    assert {"ANE_SWEEP_OUT", "MLFLOW_TRACKING_URI", "HF_HOME", "XDG_CACHE_HOME", "OMP_WAIT_POLICY", "HOME"} <= found
    assert {"ANE_SWEEP_TEAM", "PYTORCH_ENABLE_MPS_FALLBACK"} <= found, "by way of a constant"
    assert sorted(found - LISTED) == []


def test_every_variable_of_ours_is_listed_and_every_listed_one_is_ours():
    code = [path for folder in ("ane_sweep", "tests") for path in (ROOT / folder).rglob("*.py")]
    own = {name for path in code for name in OWN.findall(path.read_text(encoding="utf-8"))} - {"ANE_SWEEP_"}
    assert own == {name for name in LISTED if OWN.fullmatch(name)}
