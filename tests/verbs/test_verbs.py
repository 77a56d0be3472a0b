"""Every verb's own words: --help wherever it stands, what the help promises, and what is said of a wrong word."""

import shlex

import pytest

from ane_sweep import verbs
from ane_sweep import words as command
from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.terminal import BAD_CONFIGURATION, OK

# a line that would do something, or fail, if --help did not come first
BUSY = {
    "card": ["x.mlpackage", "-o", "card.md"],
    "fix": ["x.mlpackage", "-o", "y.mlpackage", "--only", "nosuch"],
    "chunk": ["x.mlpackage", "2", "-o", "chunks"],
    "compress": ["x.mlpackage", "p4", "-o", "y.mlpackage"],
    "sweep": ["model=nosuch"], "plan": ["-m", "model=nosuch"], "report": ["nosuch", "--html"], "compare": ["a", "b", "c"],
    "history": ["x"], "nightly": ["write", "cron"], "log": ["nosuch", "uri=http://127.0.0.1:1"], "export": ["last"],
    "import": ["nosuch.zip"], "prune": ["older-than-days=x"], "lint": ["nosuch", "--chip"], "devices": ["--jsn"],
    "doctor": ["now"], "run": ["nosuch", "--random", "-1"], "diff": ["a"], "version": ["now"], "help": ["nosuch"],
    "calibrate": ["run", "now"], "ci": ["write", "gitlab"], "hwx": ["nosuch", "--task", "x"],
    "best": ["-m", "psnr_db>=x", "chunks=0"], "list": ["now"], "get": ["last"], "completion": ["tcsh"], "fleet": ["worker", "http://x"],
    "generate": ["model=nosuch", "samples=0", "--stop", ""], "classify": ["nosuch", "file=nosuch", "count=x"],
}  # fmt: skip


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("verb", verbs.names())
def test_help_is_all_that_happens_wherever_it_stands(verb, flag, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = []
    for words in ([flag], [*BUSY[verb], flag], [flag, *BUSY[verb]]):
        assert main([verb, *words]) == OK
        captured = capsys.readouterr()
        assert captured.err == ""
        said.append(captured.out)
    assert said[0] == said[1] == said[2] and list(tmp_path.iterdir()) == []
    assert f"usage: ane-sweep {'' if verb == 'sweep' else verb}" in said[0]
    codes, _, example = said[0].partition("exit codes:\n")[2].partition("\n\nexample:\n")
    assert {"0", "2", "130"} <= {line.split()[0] for line in codes.splitlines()}
    assert example.lstrip().startswith("ane-sweep ")


def parsers(monkeypatch, words: list[str]) -> list[command.Parser]:
    """The parsers that a command makes; it stops where they would read its words."""
    made: list[command.Parser] = []

    def read(parser, args):
        made.append(parser)
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setattr(command.Parser, "read", read)
        main(words)
    return made


@pytest.mark.parametrize("verb", verbs.names())
def test_the_help_has_every_word_and_its_example_is_one(verb, monkeypatch):
    (parser,) = parsers(monkeypatch, [verb])
    said = parser.format_help()
    flags = [name for action in parser._actions for name in action.option_strings]
    assert [word for word in (*flags, *parser.keys) if word not in said] == []
    for action in parser._actions:
        assert action.help and (
            action.nargs == 0 or not action.option_strings or "default" in action.help or not action.default
        )
    words = shlex.split(parser.example)[1 if verb == "sweep" else 2 :]
    words = [] if verb == "best" else words  # figures and overrides, which others read
    parser.read(words[: words.index("--")] if "--" in words else words)


@pytest.mark.parametrize("verb", [verb for verb in verbs.names() if verb not in ("sweep", "plan")])
def test_a_wrong_flag_is_refused_with_those_there_are(verb, monkeypatch):
    (parser,) = parsers(monkeypatch, [verb])
    with pytest.raises(ConfigError, match=r"--nonsense: unknown here.*; known: "):
        words = {"completion": ["bash"], "fleet": ["status"], "ci": ["write", "github"]}.get(verb, ["a", "b"])
        parser.read(["--nonsense"] if verb in ("devices", "doctor", "version", "prune") else [*words, "--nonsense"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["log", "uir=x"],
            "uir=x: unknown here (did you mean 'uri='?); known: --json, experiment=NAME, out=PATH, uri=URI",
        ),
        (["doctor", "now"], "now: unknown here; ane-sweep doctor [--json]"),
        (["devices", "out=x"], "out=x: unknown here; known: --json"),
        (["report", "a", "b"], "no sweep a with records"),
        (["lint", "x", "--share", "cots"], "cots: unknown (did you mean 'cost'?); choices: ops, cost"),
        (["diff", "a", "b", "--min-psnr", "nan"], "--min-psnr"),
        (["model=tiny-gpt2", "--config-name", "x"], "--config-name: unknown here (did you mean '--config-dir'?)"),
        (["plan", "model=tiny-gpt2", "--run"], "--run: unknown here"),
        (["history", "9" * 5000], "expected how many runs to look at"),
        (["prune", "max-gb=1_0e"], "max-gb=1_0e: expected a number of 0 or more"),
    ],
)
def test_a_wrong_word_says_what_is_known(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == BAD_CONFIGURATION
    assert said in capsys.readouterr().err


def test_words_that_hold_an_equals_sign_are_still_words(tmp_path, monkeypatch):
    (parser,) = parsers(monkeypatch, ["compare"])
    assert parser.read(["last:chunks=1", "last:chunks=4", f"out={tmp_path}"]).words == [
        "last:chunks=1",
        "last:chunks=4",
    ]
    (parser,) = parsers(monkeypatch, ["report"])
    assert str(parser.read(["--html", "/a=b/report.html"]).html) == "/a=b/report.html"
    (parser,) = parsers(monkeypatch, ["lint"])
    assert [str(path) for path in parser.read(["chunks=2/model.mlpackage"]).paths] == ["chunks=2/model.mlpackage"]
