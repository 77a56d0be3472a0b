"""A status badge as SVG: what share of the ops is on the Neural Engine of which chip."""

from html import escape

from ane_sweep.ci.judgement import Judgement

_GOOD, _FAIR, _BAD = "#2da44e", "#bf8700", "#cf222e"
_PIXELS = 7  # of a character of Verdana at 11 px; textLength makes it exact
_TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {text}">
<title>{label}: {text}</title>
<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="{color}"/></g>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{label_x}" y="14" textLength="{label_length}">{label}</text><text x="{text_x}" y="14" textLength="{text_length}">{text}</text>
</g>
</svg>
"""


def draw_badge(judgements: list[Judgement]) -> str:
    """Return the badge of the worst verdict: green if all limits are kept, amber if one could not be tested, red if one is broken."""
    worst = min(judgements, key=lambda made: (made.is_ok, not made.in_doubt, made.verdict.ane_share))
    color = _BAD if not worst.is_ok else _FAIR if worst.in_doubt else _GOOD
    time = "" if worst.ms is None else f", {worst.ms:.3g} ms"
    label, text = "Neural Engine", f"{worst.verdict.ane_share:.0%} on {worst.verdict.chip}{time}"
    left, right = (len(part) * _PIXELS + 12 for part in (label, text))
    return _TEMPLATE.format(
        width=left + right, left=left, right=right, color=color, label=escape(label), text=escape(text), label_x=left / 2,
        text_x=left + right / 2, label_length=left - 12, text_length=right - 12,
    )  # fmt: skip
