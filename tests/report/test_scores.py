"""What a score of a task is called in tables, in MLflow and in limits."""

from constructed import records

from ane_sweep.bridge.figures import Metric
from ane_sweep.report import table
from ane_sweep.search import goal
from ane_sweep.tracking import figures


def scored():
    one, other, plain = records(3)
    one.metrics += [
        Metric("perplexity", 1.8312, "1", source="reference"),
        Metric("perplexity_torch", 1.8204, "1"),
        Metric("task_kl", 1e-5, "nat"),
    ]
    other.metrics += [
        Metric("accuracy", 0.85, "1"),
        Metric("accuracy_torch", 0.8542, "1"),
        Metric("label_agreement", 0.9958, "1"),
    ]
    return [one, other, plain]


def test_a_table_has_the_score_and_what_torch_has_there():
    columns = {column.head: column.cells for column in table.list_columns(scored())}
    assert columns["perplexity (torch)"] == ["1.831 (1.820)", "-", "-"]
    assert columns["accuracy (torch)"] == ["-", "0.850 (0.854)", "-"] and columns["label agreement"] == [
        "-",
        "0.996",
        "-",
    ]
    assert not {"perplexity (torch)", "label agreement"} & {column.head for column in table.list_columns(records(3))}


def test_mlflow_has_it_among_the_first_figures():
    names = [name for name, _, _ in figures.cell_metrics(scored()[0])]
    assert "measured.perplexity" in names and "rest.measured.task_kl" in names
    assert "measured.accuracy" in [name for name, _, _ in figures.cell_metrics(scored()[1])]


def test_a_score_is_a_limit_and_an_aim():
    wanted, rest = goal.parse(["perplexity<=1.83", "minimise=package_mb", "label_agreement>=0.99"])
    one, other, plain = scored()
    assert (
        not rest
        and str(wanted.broken(one)) == "perplexity<=1.83"
        and wanted.broken(other) is None
        and wanted.broken(plain) is None
    )
