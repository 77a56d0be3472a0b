"""The placement room scored in the open: `python -m tests.proof.placement.score [--fit] [--json] [NAME=PACKAGE ...]`.

Legality and placement against what an M4 reported (data/m4), the estimator with each case left out, the latency
estimate against published figures, and, for packages given as e.g. `gpt2/split_einsum=PATH`, op counts beside the
published ones. `--fit` writes data/m4/rates.json,
data/latency.json and data/ordering.json anew. About 10 s.
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.placement import chips, costs, legality, path
from ane_sweep.placement.sites import Site
from ane_sweep.terminal import OK
from tests.proof.placement import cases, choices, fit, pairs, score_text, tables, terms

PUBLISHED = Path(__file__).parents[3] / "ane_sweep" / "placement" / "data" / "published"
EXPLAINED = {
    ("legality", "slice_dyn"): "one program of the study fell to a fallback planner, which names the op as taken",
    ("placement", "band_part"): "the study's own miss: 0.658 ms chosen where 0.640 ms was possible",
    ("placement", "conv_k17"): "3.2 ms on the CPU went to the GPU, whose estimates are not public",
}


@dataclass
class Legality:
    """Counts of ops that the M4 took or refused, and how many of each the rules got right."""

    accepted: int = 0
    accepted_right: int = 0
    refused: int = 0
    refused_right: int = 0
    misses: list[str] = field(default_factory=list)


@dataclass
class Placement:
    """Ops whose unit was predicted; `ties` differ from the report where either choice costs the same."""

    rows: int = 0
    right: int = 0
    ties: int = 0
    always_ane_right: int = 0
    always_cpu_right: int = 0
    by_class: dict[str, list[int]] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)


def plans() -> Iterator[tuple[str, str, list[dict[str, str]], list[Site]]]:
    """(context, case, reported rows, the case's ops) of every program in compute_plan.csv."""
    grouped: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in cases.rows("compute_plan.csv"):
        grouped[row["context"], row["case"]].append(row)
    for (context, case), rows in grouped.items():
        sites = cases.build(case, context=context == "ctx")
        if [site.type for site in sites] != [row["op_type"] for row in rows]:
            raise ValueError(f"{case} ({context}): its ops do not line up with the report")
        yield context, case, rows, sites


def score_legality() -> Legality:
    found, chip = Legality(), chips.get("m4")
    for context, case, rows, sites in plans():
        for row, site in zip(rows, sites, strict=True):
            if row["ane_supported"] == "":
                continue
            verdict = legality.judge(site, chip)
            said, is_right = row["ane_supported"] == "1", ("ane" in verdict.supported) == (row["ane_supported"] == "1")
            if said:
                found.accepted, found.accepted_right = found.accepted + 1, found.accepted_right + is_right
            else:
                found.refused, found.refused_right = found.refused + 1, found.refused_right + is_right
            if not is_right:
                why = EXPLAINED.get(("legality", case), verdict.rule or "no rule refuses it")
                found.misses.append(f"{context}/{case} op {row['op_index']} {site}: reported {said}; {why}")
    return found


def score_compile() -> tuple[int, int, list[str]]:
    """(agreed, cases, differences) between the rules and whether the M4's ANE compiler took the case."""
    agreed, differences, rows = 0, [], cases.rows("compile.csv")
    for row in rows:
        legal = all(
            "ane" in legality.judge(site, chips.get("m4")).supported for site in cases.build(row["case"], context=False)
        )
        if legal == (row["h16g_m4_compiles"] == "1"):
            agreed += 1
        else:
            differences.append(f"{row['case']}: rules say {legal}, the compiler {not legal}")
    return agreed, len(rows), differences


def score_placement(rates_for: Callable[[str], costs.Rates]) -> Placement:
    """Predicted unit of every op whose program was planned with estimates; `rates_for` gives the rates for a case."""
    found, chip = Placement(), chips.get("m4")
    counted: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for context, case, rows, sites in plans():
        if not all(row["preferred"] and row["cost_weight"] for row in rows):
            continue
        units = choose_units(sites, chip, rates_for(case))
        for row, site, unit in zip(rows, sites, units, strict=True):
            reported = row["preferred"].lower()
            found.rows += 1
            found.always_ane_right += reported == "ane"
            found.always_cpu_right += reported == "cpu"
            is_right = reported == unit
            found.right += is_right
            if not is_right and row["tie"] == "1":
                found.ties += 1
            elif not is_right:
                why = EXPLAINED.get(("placement", case), "the estimate is off")
                found.misses.append(
                    f"{context}/{case} op {row['op_index']} {site.type}: {unit}, reported {reported}; {why}"
                )
            pair = counted[site.type]
            pair[0], pair[1] = pair[0] + (is_right or row["tie"] == "1"), pair[1] + 1
    found.by_class = dict(sorted(counted.items()))
    return found


def choose_units(sites: Sequence[Site], chip: chips.Chip, rates: costs.Rates) -> list[str]:
    """Return the predicted unit of each op of a case, without the GPU."""
    pairs = []
    for site in sites:
        legal = "ane" in legality.judge(site, chip).supported
        pairs.append((costs.estimate_ms(site, "cpu", rates), costs.estimate_ms(site, "ane", rates) if legal else None))
    return path.choose(pairs)[0]


def left_out_rates(found: list[fit.Observation]) -> Callable[[str], costs.Rates]:
    """Rates fitted without a case's own observations."""
    known: dict[str, costs.Rates] = {}

    def rates(case: str) -> costs.Rates:
        if case not in known:
            known[case] = fit.fit([one for one in found if one.case != case])
        return known[case]

    return rates


def count_table(packages: dict[str, Path]) -> list[dict[str, Any]]:
    """Published op counts, and beside them what is predicted for a package of the same key, on the row's chip."""
    from ane_sweep.mil import package
    from ane_sweep.placement import predict, programs

    found = []
    with open(PUBLISHED / "op_counts.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            entry: dict[str, Any] = {**row, "predicted": None}
            if (where := packages.get(row["key"])) is not None:
                is_folder = where.suffix != ".mlpackage"
                loaded = [programs.load(p) for p in (package.program_paths(where) if is_folder else [where])]
                prediction = predict.predict_chain(loaded, chips.get(row["chip"]), "cpu_and_ne")
                entry["predicted"] = vars(prediction.summary().ops)
            found.append(entry)
    return found


def write_rates(found: list[fit.Observation]) -> None:
    content = {
        "source": "fitted by tests/proof/placement/fit.py to the M4 figures beside this file (751K study, MIT)",
        "unit": "work per ms: bytes or FLOP, as costs.py says for the class",
        "observations": len(found),
        "rates": {key: float(f"{rate:.6g}") for key, rate in fit.fit(found).items()},
    }
    costs.RATES_FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    costs.fitted.cache_clear()


def everything(packages: dict[str, Path]) -> dict[str, Any]:
    """All scores as plain values."""
    observations, said = fit.observations(), tables.said()
    agreed, count, differences = score_compile()
    return {
        "legality": asdict(score_legality()),
        "compile": {"agreed": agreed, "cases": count, "differences": differences},
        "placement": asdict(score_placement(lambda case: costs.fitted())),
        "placement_left_out": asdict(score_placement(left_out_rates(observations))),
        "estimator": [asdict(entry) for entry in fit.leave_one_case_out(observations)],
        "estimator_fitted": [asdict(entry) for entry in fit.leave_one_case_out(observations, refit=False)],
        "latency": [asdict(entry) for entry in [*tables.tables(said), *tables.by_unit(said)]],
        "pairs": [asdict(entry) for entry in tables.pairs(said)],
        "choice": asdict(choices.score()),
        "ordering": pairs.rules(pairs.pairs()),
        "ordering_left_out": pairs.left_out(),
        "op_counts": count_table(packages),
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.proof.placement.score", description=__doc__)
    parser.add_argument(
        "--fit", action="store_true", help="write data/m4/rates.json, data/latency.json and data/ordering.json anew"
    )
    parser.add_argument("--json", action="store_true", help="all scores as JSON")
    parser.add_argument("packages", nargs="*", type=_named, metavar="NAME=PACKAGE")
    given = parser.parse_args(words)
    if given.fit:
        write_rates(fit.observations())
        terms.write()
        choices.write()
        pairs.write()
    scores = everything(dict(given.packages))
    print(json.dumps(scores, indent=1) if given.json else score_text.text(scores))
    return OK


def _named(text: str) -> tuple[str, Path]:
    name, equals, where = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=PACKAGE")
    return name, Path(where)


if __name__ == "__main__":
    sys.exit(main())
