"""What the prompt-set browser of the page shows.

Grades are small and go in whole, so that filters and counts are right; texts are large, and as many go in as there is room
for.
"""

from opensafeintent.report.browser.index import Browser, Member, browse
from opensafeintent.report.browser.kinds import KINDS, kinds_of, telling
from opensafeintent.report.browser.texts import add_texts

__all__ = ["KINDS", "Browser", "Member", "add_texts", "browse", "kinds_of", "telling"]
