"""Picture of one task as an SVG: its reads, the engine with its constants, its writes."""

from html import escape

from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.hwx.tasks import TaskDescriptor
from ane_sweep.outward import escape_controls
from ane_sweep.verbs.hwx import show

# Pixels: the first row, heights of a box and of a row, way between boxes, width of a letter.
_TOP, _BOX, _ROW, _GAP, _LETTER = 60, 34, 48, 70, 7.3
_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1c1c1e}rect{fill:#f2f2f7;stroke:#8e8e93}"
    "rect.engine{fill:#dbeafe}rect.constants{fill:#fef3c7}line{stroke:#3a3a3c;marker-end:url(#tip)}"
)


def svg(program: CompiledProgram, task: TaskDescriptor) -> str:
    """Return the picture as one self-contained SVG."""
    reads, writes = show.list_moved(task, "reads"), show.list_moved(task, "writes")
    engine = [
        f"{task.engine}: {task.operation}",
        f"{task.shape('in')} → {task.shape('out')}, kernel {show.kernel(task)}",
    ]
    columns = [0.0]
    for texts in (reads, engine, writes):
        columns.append(columns[-1] + _wide(texts) + _GAP)
    rows = max(len(reads), len(writes), 1)
    middle = _TOP + _ROW * (rows - 1) / 2
    title = f"{program.path.name}, task {task.index} of {len(program.tasks)}, {program.generation.name}"
    parts = [_text(10, 18, title)]
    centres = [_TOP + _ROW * number for number in range(rows)]
    for y, name in zip(centres, reads):
        parts += [_box(10, y, _wide(reads), [name]), _draw_line(10 + _wide(reads), y, 10 + columns[1] - 4, middle)]
    parts.append(_box(10 + columns[1], middle, _wide(engine), engine, "engine"))
    for y, name in zip(centres, writes):
        parts += [_box(10 + columns[2], y, _wide(writes), [name])]
        parts += [_draw_line(10 + columns[1] + _wide(engine), middle, 6 + columns[2], y)]
    bottom = middle + _ROW + 30
    if task.constant_parts:
        name = show.describe_constants(task)
        parts += [_box(10 + columns[1], bottom, _wide([name]), [name], "constants")]
        parts += [_draw_line(40 + columns[1], bottom - _BOX / 2, 40 + columns[1], middle + _BOX / 2 + 4)]
    return _page(columns[3] + 20, max(bottom, centres[-1]) + _ROW, parts)


def _page(wide: float, high: float, parts: list[str]) -> str:
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker>'
    )
    size = f'width="{wide:.0f}" height="{high:.0f}" viewBox="0 0 {wide:.0f} {high:.0f}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{_STYLE}</style>\n<defs>{tip}</defs>\n{body}\n</svg>\n'


def _wide(texts: list[str]) -> float:
    return max(len(text) for text in texts) * _LETTER + 20


def _box(x: float, middle: float, wide: float, texts: list[str], kind: str = "memory") -> str:
    high = _BOX + 16 * (len(texts) - 1)
    box = f'<rect class="{kind}" x="{x:.0f}" y="{middle - high / 2:.0f}" width="{wide:.0f}" height="{high}" rx="4"/>'
    first = middle + 4 - 8 * (len(texts) - 1)
    return box + "".join(_text(x + 10, first + 16 * number, text) for number, text in enumerate(texts))


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}">{escape(escape_controls(text))}</text>'


def _draw_line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to_x:.0f}" y2="{to_y:.0f}"/>'
