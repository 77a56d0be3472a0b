"""What the compiler wrote of itself into a program: its version, the modules that made it, and the flags it ran with."""

import re
from dataclasses import dataclass

_VERSION = re.compile(r"(\w*compiler) v([\d.]+)")
_MODULE = re.compile(r"Module (\w+):")
_FIELD = re.compile(r"(Module\w+|CompilationMethod):\s*(.*)")


@dataclass(frozen=True)
class Compiler:
    name: str | None
    version: str | None
    target: str | None  # as its -t flag names it: h13, h14g
    modules: list[dict[str, str]]
    flags: dict[str, str]


def read_banner(banner: str) -> Compiler:
    """The banner of a program; what is not there is None or empty."""
    version = _VERSION.search(banner)
    modules: list[dict[str, str]] = []
    flags: dict[str, str] = {}
    for line in (line.strip() for line in banner.splitlines()):
        if line.startswith("-"):
            name, value = _parse_flag(line)
            flags[name] = value
        elif module := _MODULE.match(line):
            modules.append({"module": module[1]})
        elif modules and (field := _FIELD.match(line)):
            modules[-1][field[1]] = field[2].strip()
    return Compiler(version[1] if version else None, version[2] if version else None, flags.get("-t"), modules, flags)


def _parse_flag(line: str) -> tuple[str, str]:
    """`--name=value`, `-t h13`, and a bare flag, whose value is empty."""
    name, between, value = line.partition("=" if line.startswith("--") and "=" in line else " ")
    return name.strip(), value.strip() if between else ""
