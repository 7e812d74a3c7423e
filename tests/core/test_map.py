"""What docs/architecture.md says is true, and docs/README.md lists all pages."""

import ast
import re
from pathlib import Path

import happened
from core.test_architecture import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(happened.__file__).parent
MAP = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
WALKS = {"A message": 9, "A row": 7, "A log line": 5, "A pixel": 5}


def section(title):
    [text] = re.findall(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", MAP, re.M | re.S)
    return text


def test_the_map_says_of_each_room_what_it_does_and_what_the_import_test_lets_it_import():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section("Rooms"), re.M)
    stated = {room: {*imports.split(", ")} - {"nothing"} for room, _, imports in rows}
    assert stated.pop("cli") == {"all"}
    assert stated == MAY_IMPORT
    assert stated.keys() | {"cli"} == ROOMS
    assert all(re.fullmatch(r"[A-Z].*\.", sentence) for _, sentence, _ in rows)


def named_functions():
    return re.findall(r"`([\w/]+\.(?:py|js)):([\w.]+)`", MAP)


def names_in(path):
    """The names that a module defines or imports, methods as Class.method; the classes of a script."""
    if path.suffix == ".js":
        return {*re.findall(r"^(?:class|function) (\w+)", path.read_text(), re.M)}
    names = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name, body=body):
                methods = {
                    each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                }
                names |= {name} | {f"{name}.{method}" for method in methods}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def test_every_function_that_the_map_names_is_there():
    named = named_functions()
    assert len(named) > 30
    missing = {
        (file, name)
        for file, name in named
        if not (SOURCE / file).is_file() or name not in names_in(SOURCE / file)
    }
    assert missing == set()


def test_every_file_and_folder_that_the_map_names_is_there():
    named = {
        *re.findall(r"`((?:\w+/)+[\w.]+?\.(?:py|js|json))[:`]", MAP),
        *re.findall(r"`((?:\w+/)+\w+)`", MAP),
    }
    named -= {name for name in named if name.startswith("tests/") and (ROOT / name).is_file()}
    named.discard("src/happened")
    assert len(named) > 30
    assert {name for name in named if not (SOURCE / name).exists()} == set()


def test_each_walk_is_a_numbered_list_of_functions():
    for title, steps in WALKS.items():
        text = section(f"{title},")
        assert [int(number) for number in re.findall(r"^(\d+)\. ", text, re.M)] == [*range(1, steps + 1)]
        assert re.search(r"`[\w/]+\.py:\w+", text)
    changes = re.findall(r"^\| (?!to change|---)(.+?) \|", section("Where do I change"), re.M)
    assert len(changes) >= 10


def test_the_map_and_the_index_are_linked_from_the_first_pages():
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        assert "(docs/architecture.md)" in text
        assert "(docs/README.md)" in text


def test_the_index_has_every_page_with_one_sentence():
    index = (ROOT / "docs" / "README.md").read_text()
    listed = re.findall(r"^- \[([\w-]+\.md)\]\(\1\): \S.*\.$", index, re.M)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted(pages)
