"""Look up the known facts of the format in tables: `data/*.csv`, a row a fact with its source (`data/sources.csv`)."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ane_sweep.csv_files import read_csv

_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Generation:
    """A generation of the Neural Engine. `layout` names the columns of registers.csv; "" if no stream was ever published."""

    subtype: int
    name: str
    chips: str
    isa: int | None
    layout: str
    header_words: int
    linked: bool
    evidence: str


@dataclass(frozen=True)
class Field:
    """A bit field: bits `low` to `high` of the register at an address."""

    address: int
    low: int
    high: int
    register: str

    def extract(self, word: int) -> int:
        """Return the value of this field in a word."""
        return word >> self.low & ((1 << self.high - self.low + 1) - 1)


@dataclass(frozen=True)
class RegisterBlock:
    name: str
    base: int
    words: int


@cache
def read_rows(table: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a table of `data/`."""
    return tuple(read_csv(_DATA / f"{table}.csv"))


@cache
def generation(subtype: int) -> Generation:
    """Return the Neural Engine generation for a CPU subtype in a file's header.

    An unknown subtype gives a generation with the number as its name, whose tasks are not decoded.
    """
    for row in read_rows("generations"):
        if int(row["subtype"]) == subtype:
            return Generation(
                subtype, row["generation"], row["chips"], int(row["isa"]), row["layout"],
                int(row["header_words"] or 0), row["linked"] == "yes", row["evidence"],
            )  # fmt: skip
    return Generation(subtype, f"subtype {subtype}", "?", None, "", 0, False, "not in any table")


@cache
def fields(layout: str, table: str = "registers") -> dict[str, Field]:
    """Return the fields of a task's registers, or of its `headers`, whose `address` is the number of the word."""
    place = "word" if table == "headers" else "address"
    return {
        row["field"]: Field(int(row[place], 0), int(row["low"]), int(row["high"]), row.get("register", ""))
        for row in read_rows(table)
        if layout in row["layout"].split()
    }


@cache
def blocks(layout: str) -> tuple[RegisterBlock, ...]:
    return tuple(
        RegisterBlock(row["block"], int(row["base"], 16), int(row["words"]))
        for row in read_rows("blocks")
        if layout in row["layout"].split()
    )


def find_block(layout: str, address: int) -> RegisterBlock | None:
    return next((item for item in blocks(layout) if item.base <= address < item.base + 4 * item.words), None)


@cache
def operations() -> dict[tuple[str, int], str]:
    """Return {(field, value): the hardware's operation}."""
    return {(row["register"], int(row["value"])): row["operation"] for row in read_rows("operations")}


@cache
def engines() -> dict[int, str]:
    """Return {task type: engine}, NE or PE."""
    return {int(row["value"]): row["engine"] for row in read_rows("operations") if row["register"] == "task_type"}


@cache
def elements() -> dict[int, tuple[str, int]]:
    """Return {code: (name, bits)} of the element types."""
    return {int(row["code"]): (row["element"], int(row["bits"])) for row in read_rows("elements")}


@cache
def descriptor(flavour: int) -> dict[str, int]:
    """Return the offsets of the parts of an LC_THREAD of this flavour, in bytes from the command; {} for an unknown flavour."""
    for row in read_rows("descriptors"):
        if int(row["flavour"]) == flavour:
            return {name: int(value, 0) for name, value in row.items() if name not in ("flavour", "source") and value}
    return {}
