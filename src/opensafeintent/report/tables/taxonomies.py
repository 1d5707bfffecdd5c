"""What prompt-sets are sorted into (paper, Tables 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.report.tables.record import Cell, Column, Table
from opensafeintent.taxonomy import Category, Taxonomy

__all__ = ["domains", "task_types"]


def domains(groups: Sequence[Group]) -> Table:
    """Return Table 1: the harm domains of every taxonomy in the report."""
    return _categories(groups, "table_1_domains", "Table 1. Harm domains", lambda taxonomy: taxonomy.harm_domains)


def task_types(groups: Sequence[Group]) -> Table:
    """Return Table 2: the task types of every taxonomy in the report."""
    return _categories(groups, "table_2_task_types", "Table 2. Task types", lambda taxonomy: taxonomy.task_types)


def _categories(
    groups: Sequence[Group], name: str, title: str, categories: Callable[[Taxonomy], Sequence[Category]]
) -> Table:
    taxonomies: list[Taxonomy] = []
    for group in groups:
        if group.dataset.taxonomy not in taxonomies:
            taxonomies.append(group.dataset.taxonomy)
    rows: list[tuple[Cell, ...]] = [
        (taxonomy.name, item.name, item.definition, "; ".join(item.includes), "; ".join(item.excludes))
        for taxonomy in taxonomies
        for item in categories(taxonomy)
    ]
    return Table(
        name=name,
        title=title,
        columns=("taxonomy", "name", "definition", "includes", "excludes"),
        rows=tuple(rows),
        shown=(
            *((Column("taxonomy", "Taxonomy"),) if len(taxonomies) > 1 else ()),
            Column("name", "Name", "name"),
            Column("definition", "Definition"),
            Column("includes", "Includes"),
            Column("excludes", "Excludes"),
        ),
    )
