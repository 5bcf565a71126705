"""The ledger drawn: charts as SVG, a page that holds all of it in one file, and the same figures as text."""

from mirrorfeed.monitor.report_page import page
from mirrorfeed.report.text import text, told

__all__ = ["page", "text", "told"]
