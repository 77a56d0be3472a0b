"""Columns in a terminal: what a pipe gets is what a person sees."""

from rich.text import Text

from ane_sweep.tables import aligned


def test_columns_are_as_wide_as_they_must_be_and_no_line_ends_in_spaces():
    rows = [["a", "1", "[bold]"], ["bbbb", "22", ""], ["c", "3", "x" * 300]]
    assert aligned(rows, heads=["name", "n", "what"], right={1}) == "\n".join(
        ["name   n  what", "a      1  [bold]", "bbbb  22", "c      3  " + "x" * 300]
    )
    assert aligned([]) == ""


def test_the_last_column_goes_on_below_itself():
    rows = [["yes", "disk", "here is room"], ["", Text("->", justify="right"), "make more of it"]]
    assert aligned(rows, width=22) == "yes  disk  here is\n           room\n       ->  make more\n           of it"
