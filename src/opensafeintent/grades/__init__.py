"""Grades from wherever they come, as rows, as a file, and as one labelled array."""

from opensafeintent.grades.table import (
    Graded,
    GradeRow,
    grade_row,
    median_grade,
    panel_grade,
    sort_rows,
    to_array,
    write_grades,
    write_grades_of_runs,
)

__all__ = [
    "GradeRow",
    "Graded",
    "grade_row",
    "median_grade",
    "panel_grade",
    "sort_rows",
    "to_array",
    "write_grades",
    "write_grades_of_runs",
]
