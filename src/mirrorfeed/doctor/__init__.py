"""What is wrong with a table on its way, by name, from a closed list; and what helps."""

from mirrorfeed.doctor.findings import Code, Finding
from mirrorfeed.doctor.judge import TableFacts, ZoneFacts, judge_table, judge_zone
from mirrorfeed.doctor.look import look_at_table, look_at_zone, mend

__all__ = [
    "Code",
    "Finding",
    "TableFacts",
    "ZoneFacts",
    "judge_table",
    "judge_zone",
    "look_at_table",
    "look_at_zone",
    "mend",
]
