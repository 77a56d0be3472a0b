"""Option files that an editor, a hand or a stranger damaged: each is taken, or refused in a sentence that names it."""

import copy
import random

import pytest
import yaml
from fuzz.ended import ended

from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir
from ane_sweep.terminal import BAD_CONFIGURATION, OK

HANG_S = 60.0
VALUES = (
    None, True, 0, -1, 2, 2**31, 2**40, 2**63, -(2**63), 1.5, -0.0, 1e300, float("inf"), float("nan"), "", " ", "x", "a\0b", "\ud800",
    "null", "???", "${seed}", "${model}", "${..}", "${nosuch}", "${oc.env:HOME}", "tiny-gpt2", "p4", "fp16", "random", "x" * 3000, "../x",
    [], {}, [[]], [1, 2], ["a"], {"a": 1}, {1: 2}, {None: 1}, {True: 1}, [None], {"kind": "linear"}, {"kind": [1]}, b"bytes",
)  # fmt: skip
SNIPPETS = (
    "\t", "\n", "\0", "\ufeff", "\x85", ": ", "- ", "&a ", "*a ", "!!python/name:os.system ", "!!binary ", "!!set ", "? ", "| ", "> ", "{",
    "}", "[", "]", "'", '"', "#", "%", "@",
    "---\n", "...\n", "<<: *a\n", "? [a]\n: b\n", "9" * 5000, "[" * 900, "{a: " * 900, "x: &a [*a]\n",
    "# @package _global_\n", "# @package nosuch\n", "defaults: [nosuch]\n", "defaults: [{override model: x}]\n", "0x" + "f" * 3000, "=\n",
    "é", "1:30:00", "2026-01-01", "~", "yes",
)  # fmt: skip
ORIGINALS = {
    group: [(conf_dir() / group / name).read_text(encoding="utf-8") for name in names]
    for group, names in {
        "model": ("gpt2.yaml", "minilm.yaml"),
        "precision": ("int4.yaml", "fp16.yaml"),
        "sweep": ("crash_test.yaml", "quick.yaml", "nightly.yaml", "probe_sizes_at_once.yaml"),
    }.items()
}
for _group, _names in {
    "model": ("tiny-gpt2", "tiny-t5", "probe-tiny"),
    "precision": ("p4", "fp16", "mixed4", "sparse50_p4", "w8a8"),
}.items():  # in full, as somebody may write them
    ORIGINALS[_group] += [yaml.safe_dump(options.shipped(_group, name), sort_keys=False) for name in _names]


def places(content):
    for key, part in list(
        content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    ):
        yield content, key
        yield from places(part)


def changed(text: str, draw: random.Random) -> bytes:
    """One to five values replaced, removed, doubled or renamed; or the text itself cut, overwritten or added to."""
    if draw.random() < 0.5:
        content = copy.deepcopy(yaml.safe_load(text))
        for _ in range(draw.choice((1, 1, 2, 5))):
            spots = list(places(content))
            if not spots:
                break
            holder, key = draw.choice(spots)
            how = draw.randrange(6)
            if how <= 2:
                holder[key] = draw.choice(VALUES)
            elif how == 3:
                del holder[key]
            elif isinstance(holder, dict):
                holder[draw.choice(("x", "name", "axes", "kind", "weights", "arch", 1, None))] = holder[key]
            else:
                holder.extend([holder[key]] * draw.choice((1, 2, 1000)))
        return yaml.dump(content, allow_unicode=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    made = text
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(made) + 1)
        how = draw.randrange(3)
        cut = draw.randrange(1, 40) if how else 0
        made = made[:place] + (draw.choice(SNIPPETS) if how < 2 else "") + made[place + cut :]
    encoding = draw.choice(("utf-8",) * 8 + ("utf-16", "latin-1", "utf-8-sig"))
    return made.encode(encoding, "replace")


@pytest.fixture
def folder(tmp_path):
    for group in ORIGINALS:
        (tmp_path / group).mkdir()
    return tmp_path


def test_any_option_file_is_taken_or_refused_in_words(tries, folder, monkeypatch):
    for number, draw in tries:
        group = draw.choice(list(ORIGINALS))
        path = folder / group / "mine.yaml"
        path.write_bytes(changed(draw.choice(ORIGINALS[group]), draw))
        where = f"try {number}: {path.read_bytes()!r:.3000}"
        words = {"model": ["model=mine"], "precision": ["model=tiny-gpt2", "precision=mine"], "sweep": ["+sweep=mine"]}[
            group
        ]
        end = ended(
            ["plan", "--config-dir", str(folder), "-m", "weights=random", *words, f"out={folder / 'out'}"], monkeypatch
        )
        assert end.code in (OK, BAD_CONFIGURATION) and "Traceback" not in end.said, f"{where}: {end.said}"
        assert (end.code == OK) == (not end.said), f"{where}: {end.said}"
        assert len(end.said) < 100_000 and end.seconds < HANG_S, where
