"""What is wanted, as words."""

import pytest
from nights import cell

from ane_sweep.bridge.settings import SearchSettings
from ane_sweep.errors import ConfigError
from ane_sweep.search.goal import Goal, Limit, figure, of_settings, parse


def test_limits_and_objectives_are_taken_and_the_rest_is_left():
    goal, rest = parse(
        ["-m", "model=minilm", "psnr_db>=40", "package_mb<=25", "minimise=latency_ms,package_mb", "chunks=1,2"]
    )
    assert goal == Goal({"latency_ms": -1, "package_mb": -1}, (Limit("psnr_db", 1, 40), Limit("package_mb", -1, 25)))
    assert rest == ["-m", "model=minilm", "chunks=1,2"]
    assert str(goal) == "smallest latency_ms, smallest package_mb with psnr_db>=40, package_mb<=25"


def test_without_an_objective_it_is_the_least_latency():
    nothing = SearchSettings()
    assert of_settings(nothing, parse(["psnr_db>=40"])[0]).objectives == {"latency_ms": -1}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("psnr>=40", "psnr: no figure (did you mean 'psnr_db'?); choices: accuracy"),
        ("psnr_db>=good", "psnr_db>=good: expected a number after >="),
        ("psnr_db>=nan", "psnr_db>=nan: expected a number"),
        ("minimise=latency", "minimise=latency: no figure (did you mean 'latency_ms'?)"),
        ("guessed.latency_ms<=2", "guessed.latency_ms: no figure"),
    ],
)
def test_a_wrong_word_is_told_with_the_choices(word, said):
    with pytest.raises(ConfigError) as error:
        parse([word])
    assert said in str(error.value)


def test_figures_have_the_unit_of_their_word_and_none_where_there_is_none():
    record = cell(psnr=55.5, size=25_000_000)
    assert (
        figure(record, "package_mb") == 25
        and figure(record, "psnr_db") == 55.5
        and figure(record, "latency_ms") == 10.0
    )
    assert figure(cell(runtime="auto"), "latency_ms") is None, "nobody asked for the time of this CPU by name"
    assert figure(record, "measured.psnr_db") == 55.5
    assert figure(record, "estimated.m1.latency_ms") is figure(record, "ane_share") is figure(record, "cosine") is None


def test_the_worst_output_may_be_a_limit_and_one_output_is_its_own_worst():
    one, two = cell(psnr=55.5), cell(psnr=55.5, worst=20.0)
    assert figure(one, "psnr_worst_db") == 55.5 and figure(two, "psnr_worst_db") == 20.0
    limit, _ = parse(["psnr_worst_db>=40"])
    assert limit.fits(one) and not limit.fits(two)


def test_a_limit_is_broken_by_what_is_known_alone():
    goal, _ = parse(["psnr_db>=60", "cosine>=0.9", "minimise=latency_ms"])
    assert goal.broken(cell(psnr=59)) == Limit("psnr_db", 1, 60)
    assert goal.broken(cell(psnr=60)) is None, "the limit itself is allowed, and nobody knows the cosine"
    assert goal.broken(cell(psnr=None)) is None
    assert goal.gains(cell()) == (-10.0,)


def test_limits_that_no_cell_can_keep_to_are_refused_before_anything_runs():
    nothing = SearchSettings(limits=["psnr_db<=40"])
    with pytest.raises(ConfigError) as error:
        of_settings(nothing, parse(["psnr_db>=60"])[0])
    assert "psnr_db>=60 and psnr_db<=40: no cell can keep to both" in str(error.value)
    assert of_settings(nothing, parse(["psnr_db>=40"])[0])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("estimated_ms<=2", "estimated_ms.m1<=2"),
        ("estimated_ms.m4<=2", "estimated_ms.m4<=2"),
        ("ane_share>=0.9", "ane_share.m1>=0.9"),
        ("ane_cost_share.m4>=0.9", "ane_cost_share.m4>=0.9"),
        ("estimated.m4.latency_ms<=2", "estimated.m4.latency_ms<=2"),
        ("latency_ms<=2", "latency_ms<=2"),
    ],
)
def test_an_estimate_is_of_a_chip_that_is_named(word, meant):
    goal = parse([word, "minimise=estimated_ms"])[0].of_chips(["m1", "m4"])
    assert str(goal) == f"smallest estimated_ms.m1 with {meant}"


@pytest.mark.parametrize("word", ["estimated_ms.m2<=2", "estimated.m2.latency_ms<=2", "ane_share.m2>=0.5"])
def test_an_estimate_of_a_chip_that_is_not_predicted_for_is_refused(word):
    with pytest.raises(ConfigError) as error:
        parse([word])[0].of_chips(["m1"])
    assert "nothing is predicted for m2; say chips=[m1,m2]" in str(error.value)


def test_an_estimate_is_taken_of_its_chip():
    record = cell(estimates={"m1": 3.0, "m4": 1.5}, ane=90)
    assert [figure(record, name) for name in ("estimated_ms.m1", "estimated_ms.m4", "estimated.m4.latency_ms")] == [
        3,
        1.5,
        1.5,
    ]
    assert figure(record, "estimated_ms.m2") is None
