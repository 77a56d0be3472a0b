"""What Apple's compiler made of programs for M1 and M2, against the rules; half of the records had no say in them."""

import pytest

from ane_sweep.placement import chips, legality, tasks
from ane_sweep.placement.sites import Site, Tensor
from tests.proof.placement import compiler, compiler_forms


@pytest.fixture(scope="module")
def scored():
    found, misses = compiler.scores()
    return {(one.half, one.target): one for one in found}, misses


@pytest.mark.parametrize("target", ["h13", "h14"])
def test_the_half_that_no_rule_was_written_on_is_predicted_about_as_well_as_the_other(scored, target):
    seen, unseen = scored[0]["rules", target], scored[0]["test", target]
    assert min(seen.exact / seen.counted, unseen.exact / unseen.counted) > 0.9
    assert unseen.exact / unseen.counted > 3 * unseen.trivial / unseen.counted, "one task an op is the trivial answer"
    assert unseen.off / unseen.counted < 0.03 < unseen.trivial_off / unseen.counted


@pytest.mark.parametrize("target", ["h13", "h14"])
def test_nothing_that_the_compiler_takes_is_refused_and_most_refusals_are_foreseen(scored, target):
    for half in ("rules", "test"):
        one = scored[0][half, target]
        assert one.taken_right == one.taken
        assert one.refused_right / one.refused >= 0.75, "everything is taken would be 0"


def test_halves_are_drawn_by_a_hash_and_about_equal():
    halves = [record.half for record in compiler.records()]
    assert abs(halves.count("rules") / len(halves) - 0.5) < 0.05
    assert compiler.half("matmul m=1 k=2 n=3") == compiler.half("matmul m=1 k=2 n=3")


def test_what_follows_a_product_is_done_on_its_way_out():
    net = compiler_forms.Net()
    x = Tensor("fp16", (1, 64, 256))
    net.op("relu", x.shape, x=net.product(x, 256))
    first, second = tasks.steps(net.sites, 13) or []
    assert (first.tasks, second.tasks, second.into) == (2, 0, net.sites[0])
    assert tasks.steps(net.sites, 16) is None, "of an M4 there are no records"


def test_an_op_of_no_record_counts_as_one_and_says_so():
    odd = Site("lrn", {"x": [Tensor("fp16", (1, 8, 8, 8))]}, [Tensor("fp16", (1, 8, 8, 8))])
    (step,) = tasks.steps([odd], 14) or []
    assert step.tasks is None and tasks.count([odd], 14) == 1


@pytest.mark.parametrize(
    ("chip", "inner", "rule"), [("m1", 16384, None), ("m1", 16385, "matmul_inner_old"), ("m4", 16385, None)]
)
def test_an_inner_size_is_legal_up_to_16384_and_to_twice_that_from_an_m4_on(chip, inner, rule):
    held = Tensor("fp16", (8, inner), const=True)
    site = Site("linear", {"x": [Tensor("fp16", (1, inner))], "weight": [held]}, [Tensor("fp16", (1, 8))])
    assert legality.judge(site, chips.get(chip)).rule == rule


def test_single_records_opened_when_the_rules_stood_are_counted_right(scored):
    after = [scored[0]["after", target] for target in ("h13", "h14")]
    assert sum(one.exact for one in after) == sum(one.counted for one in after) == 5
    assert sum(one.refused_right for one in after) == 0, "two refusals that no rule foresaw; both are explained"


def test_every_row_that_is_predicted_otherwise_has_its_reason(scored):
    assert [line for line in scored[1] if compiler.why(line) == "not explained"] == []


def test_the_method_says_how_many_records_there_are():
    records = compiler.RECORDS.read_text(encoding="utf-8").splitlines()[1:]
    single = sum(compiler.SINGLE in line for line in records)
    said = (compiler.RECORDS.parents[2] / "METHOD.md").read_text(encoding="utf-8")
    assert f"{len(records)} programs asked" in said
    assert f"{len(records) - single} rows from its reports, {single} from single records" in said
