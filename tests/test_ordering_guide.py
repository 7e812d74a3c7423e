"""docs/ordering.md says of every protocol what its facts say."""

from pathlib import Path

from happened.ordering import protocols

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "ordering.md"


def row(name, facts):
    links = "FIFO" if facts.fifo_links else "any"
    return f"| `{name}` | {facts.order} | {', '.join(sorted(facts.casts))} | {links} | {facts.description} |"


def test_the_table_of_protocols_is_that_of_the_registry():
    lines = GUIDE.read_text().splitlines()
    start = lines.index("| name | order | casts | links | what it is |") + 2
    assert lines[start : lines.index("", start)] == [row(name, facts) for name, facts in protocols().items()]
