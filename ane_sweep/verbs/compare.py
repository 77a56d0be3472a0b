"""`ane-sweep compare A B [--json] [--across-hosts]`: what changed between two runs, or cells of them"""

from ane_sweep.compare import judge, show, sides
from ane_sweep.errors import ConfigError
from ane_sweep.results.difference import LEAST_PERCENT, LEVEL
from ane_sweep.terminal import BAD_CONFIGURATION, IN_DOUBT, NOT_ALL_OK, OK, say
from ane_sweep.words import Parser, amount, make_number_reader


def compare(args: list[str]) -> int:
    """Compare two sweeps, runs or selections of cells; options --json, --markdown (the default output), --across-hosts."""
    given = _parser().read(args)
    words, out = given.words, given.out
    if len(words) > 2:
        raise ConfigError(f"compare takes A and B, not {len(words)} words; A and B: a run, last, good, or a path")
    first, second = {0: (sides.GOOD, "last"), 1: (*words, "last")}.get(len(words), tuple(words))
    level, least = given.level, given.least_percent
    found = judge.comparison(out, first, second, level, least)
    reason = judge.not_comparable(found, across_hosts=given.across_hosts)
    code = BAD_CONFIGURATION if reason else exit_code(found, timings=not given.across_hosts)
    headline = "not comparable" if reason else show.verdict(found)
    if given.json:
        text = show.as_json(found, first, second, headline=headline, level=level, least_percent=least, code=code)
    else:
        text = show.as_markdown(found, first, second, headline=headline, level=level, least_percent=least)
    print(text, end="")
    if reason:
        say(reason)
    return code


def _parser() -> Parser:
    parser = Parser(
        "compare [A] [B] [--json] [--across-hosts] [level=P] [least-percent=N] [out=PATH]",
        "What changed from A to B: estimates and other figures by their own measure, timings that answer by a test.",
        "ane-sweep compare last:chunks=1 last:chunks=4",
        {
            OK: "nothing became worse",
            NOT_ALL_OK: "a regression",
            BAD_CONFIGURATION: "a wrong word, or not comparable",
            IN_DOUBT: "no latency could be compared",
        },
    )
    parser.add(
        "words [A] [B]",
        "a run's name, last, good, or a path, each with :axis=value,... for some of its cells (default: good last)",
        nargs="*",
    )
    parser.json("a, b, verdict, exit, tests, tested, changes, timings, only_a, only_b", "Markdown")
    parser.add("--markdown", "what it prints anyway")
    parser.add("--across-hosts", "compare what does not depend on the host as well")
    probability = make_number_reader("a probability between 0 and 1", lambda value: 0 < value < 1)
    parser.add("level=P", "of all tests together, between 0 and 1", probability, LEVEL)
    parser.add("least-percent=N", "smaller changes do not count", amount, LEAST_PERCENT)
    parser.outputs()
    return parser


def exit_code(found: judge.Comparison, *, timings: bool = True) -> int:
    """Return 1 for a regression, even if little was compared. Else return IN_DOUBT if no latency was, unless `timings` is False."""
    return NOT_ALL_OK if found.regressed else OK if found.tested or not timings else IN_DOUBT
