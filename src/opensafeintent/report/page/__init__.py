"""`report.html`: every figure and table, the sentences that matter, and the responses behind the numbers, in one file."""

from opensafeintent.report.page.render import PAGE_BYTES, render_page

__all__ = ["PAGE_BYTES", "render_page"]
