"""The ledger drawn: charts as SVG, and a page that holds all of it in one file."""

from mirrorfeed.report.page import page

__all__ = ["page"]
