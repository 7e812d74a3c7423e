"""Starting the command line: what it imports, how long it takes; one table of commands and of exit codes."""

import argparse
import json
import re
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import happened.cli
from happened.cli import COMMANDS, QUESTIONS, main
from happened.cli.startup import IN_PROCESS
from happened.core.exit_codes import MEANINGS, ExitCode
from happened.trace import TraceWriter

HEAVY = {"asyncio", "cryptography", "numba", "numpy", "pandas", "pyarrow", "pyspark"}
HEAVY |= {"networkx", "tqdm", "yaml"}


def modules_after(*argv):
    """The top-level modules that a run of the command line has imported."""
    code = """
import json, sys
before = set(sys.modules)
from happened.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(new)), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr)), done.stdout


def test_help_imports_the_standard_library_alone():
    modules, output = modules_after("--help")
    assert modules <= {"happened"} | sys.stdlib_module_names
    assert not modules & HEAVY
    assert all(f"\n    {name}" in output for name in COMMANDS)


def test_a_command_imports_what_it_needs_and_not_what_others_need():
    modules, output = modules_after("keygen", "--help")
    assert "Write a fresh random key" in output
    assert not modules & (HEAVY - {"asyncio"})


def test_help_takes_less_than_300_ms_of_the_processor():
    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "happened", "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Processor time, and the least of three: the wall clock measures what else the machine is doing.
    assert min(seconds() for _ in range(3)) < 0.3


def listed(parser_of):
    """The commands and help lines that `parser_of` adds."""
    subparsers = argparse.ArgumentParser().add_subparsers()
    parser_of(subparsers)
    return {choice.dest: choice.help for choice in subparsers._choices_actions}


@pytest.mark.parametrize("module", sorted({command.module for command in COMMANDS.values()}))
def test_the_table_says_of_each_command_what_its_module_says(module):
    said = listed(import_module(f"happened.cli.{module}").add_parser)
    table = {name: command.help for name, command in COMMANDS.items() if command.module == module}
    assert table.items() <= said.items()
    assert module == QUESTIONS or table == said  # a question may be left out, see there


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: happened {name} ")


def test_every_module_with_a_command_is_in_the_table():
    folder = Path(happened.cli.__file__).parent
    with_parser = {path.stem for path in folder.glob("*.py") if "\ndef add_parser(" in path.read_text()}
    assert with_parser == {command.module for command in COMMANDS.values()}


def test_an_unknown_command_is_answered_with_all_there_are(capsys):
    with pytest.raises(SystemExit) as end:
        main(["simulat"])
    assert end.value.code == ExitCode.BAD_INPUT
    message = capsys.readouterr().err
    assert "invalid choice: 'simulat'; did you mean simulate?" in message
    assert all(name in message for name in COMMANDS)


def test_a_question_that_others_registered_is_a_command_too(monkeypatch):
    import happened.cli.jobs

    def add_parser(subparsers):
        subparsers.add_parser("toy").set_defaults(run=lambda arguments: 3)

    monkeypatch.setattr(happened.cli.jobs, "add_parser", add_parser)
    assert main(["toy"]) == 3


@pytest.mark.parametrize(
    "hidden, extra, argv",
    [
        ("pyspark", "happened[spark]", ["analyze", "TRACE", "--out", "OUT"]),
        ("networkx", "happened[topology]", ["topology", "show", "GRAPH"]),
        ("yaml", "happened[topology]", ["topology", "show", "GRAPH"]),
        ("pyarrow", "happened", ["check", "TRACE"]),
        ("numba", "happened", ["why", "TRACE", "a#1"]),
        ("pyspark", "happened[spark]", ["order", "TRACE", "--out", "OUT"]),
    ],
)
def test_a_missing_package_is_one_line_and_exit_2(tmp_path, hidden, extra, argv):
    (tmp_path / "t.jsonl").write_text('{"process": "a", "seq": 1, "kind": "internal"}\n')
    (tmp_path / "g.yaml").write_text("links: [[a, b]]\n")
    places = {"TRACE": "t.jsonl", "OUT": "out", "GRAPH": "g.yaml"}
    code = (
        f"import sys; sys.modules[{hidden!r}] = None\n"
        "from happened.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(places.get(word, word) for word in argv)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"happened: {hidden} is not installed; install it with: pip install '{extra}'\n"


def test_exit_codes_are_printed_with_their_meanings():
    help_text = happened.cli.EPILOG
    assert re.findall(r"^  (\d+) +(.*)$", help_text, re.M) == [(str(c.value), m) for c, m in MEANINGS.items()]
    assert set(MEANINGS) == set(ExitCode)


def test_commands_return_exit_codes_by_name():
    folder = Path(happened.cli.__file__).parent
    number = re.compile(r"return \d+( if .*)?$|^[A-Z, _]+ = \d, \d", re.M)
    bare = {path.stem for path in folder.glob("*.py") if number.search(path.read_text())}
    assert not bare


@pytest.mark.parametrize(
    "words",
    ["check T", "check T --out O", "why T a#1", "path T a#1 a#1", "past T a#1", "future T a#1",
     "influenced T a#1", "critical-path T", "diff T T", "advise T"],
)  # fmt: skip
def test_an_interrupt_is_said_in_one_line(monkeypatch, capsys, tmp_path, words):
    def interrupted(path, *rest):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("T").mkdir()
    monkeypatch.setattr("happened.trace.location._parts", interrupted)
    assert main(words.split()) == ExitCode.INTERRUPTED == 130
    assert capsys.readouterr().err == "happened: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["T"]


@pytest.mark.parametrize("module", ["happened.cli", "happened.cli.why", "numba"])
def test_an_interrupt_while_modules_are_imported_is_said_in_one_line(module, tmp_path):
    code = (
        "import runpy, sys\n"
        "module, *sys.argv[1:] = sys.argv[1:]\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == module:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "runpy.run_module('happened', run_name='__main__')"
    )
    words = [module, "why", str(tmp_path), "a#1"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "happened: interrupted\n")


def parsers(parser):
    """A parser and those of its subcommands, by what is typed."""
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for under in action.choices.values():
                yield from parsers(under)


@pytest.mark.parametrize("module", sorted({command.module for command in COMMANDS.values()}))
def test_whatever_writes_to_out_takes_force(module):
    parser = argparse.ArgumentParser(prog="happened")
    import_module(f"happened.cli.{module}").add_parser(parser.add_subparsers())
    for name, each in parsers(parser):
        options = each._option_string_actions
        # Keys are never overwritten, and a stream goes on with what is at --out.
        keeps = name in ("happened topology deploy", "happened stream")
        assert keeps or ("--out" in options) == ("--force" in options), name


def test_without_a_command_all_are_shown(capsys):
    assert main([]) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert not said.out
    assert "a first look:" in said.err and all(f"\n    {name}" in said.err for name in COMMANDS)


@pytest.mark.parametrize("asked", ["past", "check", "diff"])
def test_a_command_that_answers_in_its_process_does_not_import_pandas(asked, tmp_path):
    with TraceWriter(tmp_path / "run") as writer:
        writer.append(process="p", seq=1, kind="internal", label="first")
    words = {"past": ["first"], "check": [], "diff": [str(tmp_path / "run")]}[asked]
    code = """
import sys
sys.argv[0] = "happened"
from happened.cli import main
assert main() in (0, 3)
assert "pyarrow" in sys.modules and "pandas" not in sys.modules
from happened.cli.startup import allow_pandas
allow_pandas()
import pandas"""
    subprocess.run([sys.executable, "-c", code, asked, str(tmp_path / "run"), *words], check=True)


def test_the_commands_that_do_without_pandas_are_commands():
    assert COMMANDS.keys() >= IN_PROCESS
