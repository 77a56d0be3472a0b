"""The one place where text becomes HTML: templates/, in which every value is escaped unless a template says `safe`."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


@cache
def environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return found


def page(name: str, **values: Any) -> str:
    """Render a whole template."""
    return environment().get_template(name).render(values)


@cache
def macros(name: str) -> Any:
    """Return a template's macros as functions."""
    return environment().get_template(name).module
