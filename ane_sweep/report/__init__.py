"""Reports from records: the final table, Markdown, JSON, and the warnings below them."""

from ane_sweep.report.doubts import doubts
from ane_sweep.report.screen import as_json, as_markdown, as_table, as_text

__all__ = ["as_json", "as_markdown", "as_table", "as_text", "doubts"]
