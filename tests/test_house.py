"""How the package reads and how large it is: counts that may fall and never rise.

When a change lowers a count, lower its limit in LIMITS with it. `python tests/test_house.py` prints the counts of today.
The counts are an alarm, not a proof: whether a docstring reads well is for a person to say.
"""

import ast
import collections
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ane_sweep"
LIMITS = {
    "docstrings that begin with a relative word": 0,
    "docstrings that hold a riddle phrase": 0,
    "functions named by a participle or a preposition": 0,
    "class names that are defined more than once": 32,
    "uses of Any": 176,
    "uses of dict[str, Any]": 79,
    "imports of our own modules inside functions": 72,
    "files over 350 lines": 0,
    "functions over 60 lines": 0,
    "option files in conf": 85,
    "lines of an option file": 84,
    "lines of the package": 74_663,
    "topics": 23,
    "words of the topics": 16_390,
}
# A docstring's first sentence has a subject and a verb; one that begins with these has not.
RELATIVE = re.compile(
    r"(What|Where|Whom|Whose|That|Nothing|Of |With what|How many of|Why |Which|Who |Whatever|Whoever)\b"
)
RIDDLES = re.compile(
    r"\b(what is (not|left|said|told|asked|kept|made|done|known)|is said of|are said|it is said|what .{0,30} of what"
    r"|that which|whom|whoever|whatever it|where it is|if it is none|is none|of one's own|of their own that"
    r"|and no other|the one that|beside (it|them|another|one another)|as they are|what there is|nobody|somebody"
    r"|none of it|the ways? out|told|said to be|none (such|there)|where none|as (it|they) (was|were|stands?|lies?)|be it"
    r"|those of (which|whom)|goe?s? without|of it alone|deserves? doubt|in doubt|at hand|kept matrix|held against"
    r"|written aside|worth a word)\b",
    re.IGNORECASE,
)
BARE_NAMES = re.compile(
    r"told|said|asked|whole|of|beside|kept|known|found|shown|given|left|meant|spoken|owed|"
    r"due|wanted|sound|worded|settle|settled|begun|held|watched|explained|visible|bought|"
    r"drawn|spent|served|aside|afar|errand|homecoming|awaited|tries|line|wire|needs|binding|"
    r"remaining|gate"
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def sources() -> dict[str, tuple[str, ast.Module]]:
    """Return text and syntax tree of each module of the package, by its path."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {name: (text, ast.parse(text)) for name, text in texts.items()}


@cache
def count() -> dict[str, int]:
    """Return each count of LIMITS as it is today."""
    found = collections.Counter(dict.fromkeys(LIMITS, 0))
    classes = collections.Counter[str]()
    for text, tree in sources().values():
        found["lines of the package"] += text.count("\n")
        found["files over 350 lines"] += text.count("\n") > 350
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == "Any":
                found["uses of Any"] += 1
            if isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[str, Any]":
                found["uses of dict[str, Any]"] += 1
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)) and (text_of := ast.get_docstring(node)):
                found["docstrings that begin with a relative word"] += bool(RELATIVE.match(text_of.strip()))
                found["docstrings that hold a riddle phrase"] += bool(RIDDLES.search(text_of))
            if isinstance(node, FUNCTIONS):
                found["functions named by a participle or a preposition"] += bool(
                    BARE_NAMES.fullmatch(node.name.strip("_"))
                )
                found["functions over 60 lines"] += (node.end_lineno or 0) - node.lineno >= 60
        found["imports of our own modules inside functions"] += len(inner_imports(tree))
    found["class names that are defined more than once"] = sum(times > 1 for times in classes.values())
    options = sorted((ROOT / "conf").rglob("*.yaml"))
    found["option files in conf"] = len(options)
    found["lines of an option file"] = max(path.read_text(encoding="utf-8").count("\n") for path in options)
    topics = list((PACKAGE / "docs").glob("*.md"))
    found["topics"] = len(topics)
    found["words of the topics"] = sum(len(path.read_text(encoding="utf-8").split()) for path in topics)
    return dict(found)


def inner_imports(tree: ast.Module) -> set[ast.ImportFrom]:
    """Return the imports of our own modules that stand inside a function."""
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    inside = (node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom))
    return {node for node in inside if (node.module or "").split(".")[0] == "ane_sweep"}


@pytest.mark.parametrize("name", LIMITS)
def test_a_count_never_rises(name):
    assert count()[name] <= LIMITS[name], f"{name}: was {LIMITS[name]}; plainer words, smaller code or types, please"


if __name__ == "__main__":
    for name, value in count().items():
        print(f"{value:>7,}  {name} (limit {LIMITS[name]:,})")
