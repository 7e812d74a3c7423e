"""Starting the command line: what it imports, how long it takes; one table of commands and of exit codes."""

import argparse
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import happened.cli
from happened.cli import COMMANDS, GROUPS, main, node, topology, whole_parser
from happened.cli.startup import IN_PROCESS
from happened.core.exit_codes import MEANINGS, ExitCode
from happened.trace import TraceWriter

HEAVY = {"asyncio", "cryptography", "numba", "numpy", "pandas", "pyarrow", "pyspark"}
HEAVY |= {"networkx", "tqdm", "yaml"}
NAMES = [(group, name) for group, commands in GROUPS.items() for name in commands]


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
    assert all(f"         {name} " in output or f"{group:<9}{name} " in output for group, name in NAMES)


def test_a_command_imports_what_it_needs_and_not_what_others_need():
    modules, output = modules_after("node", "keys", "shared", "--help")
    assert "Write a fresh random key" in output
    assert not modules & (HEAVY - {"asyncio"})


@pytest.mark.parametrize("words", ["check", "ask", "ask why", "ask critical-path", "analyze", "view"])
def test_the_help_of_the_verbs_that_people_use_daily_imports_nothing_heavy(words):
    modules, _ = modules_after(*words.split(), "--help")
    assert not modules & HEAVY


def test_help_takes_less_than_300_ms_of_the_processor():
    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "happened", "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Processor time, and the least of three: the wall clock measures what else the machine is doing.
    assert min(seconds() for _ in range(3)) < 0.3


def test_help_fits_one_screen_and_has_at_most_fifteen_verbs(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 110
    assert len(COMMANDS) <= 15


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: happened {name} ")


def test_every_module_with_a_command_is_in_the_table():
    folder = Path(happened.cli.__file__).parent
    with_parser = {path.stem for path in folder.glob("*.py") if "\ndef add_arguments(" in path.read_text()}
    forms = {form.module for form in (*node.FORMS.values(), *topology.FORMS.values())}
    assert with_parser == {command.module for command in COMMANDS.values()} | forms | {"topics"}


def test_an_unknown_command_is_answered_with_all_there_are(capsys):
    with pytest.raises(SystemExit) as end:
        main(["simulat"])
    assert end.value.code == ExitCode.BAD_INPUT
    message = capsys.readouterr().err
    assert "invalid choice: 'simulat'; did you mean simulate?" in message
    assert all(name in message for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("why run a#1", "invalid choice: 'why'; did you mean ask why?"),
        ("chat alice", "invalid choice: 'chat'; did you mean node chat?"),
        ("ask wy run a#1", "invalid choice: 'wy'; did you mean why?"),
        ("check run --ordr fifo", "no such option: --ordr; did you mean --order?"),
        ("check run --necess", "no such option: --necess; did you mean --necessary?"),
        ("check run --nothing=3", "no such option: --nothing; the options are: --help, --order"),
        ("check run too many", "too many arguments: too many"),
        ("check run --order casual", "invalid choice: 'casual'; did you mean causal? choose from: causal,"),
        ("simulate --protocol kss", "invalid choice: 'kss'; did you mean ks"),
        ("compare --protocols kss", "no ordering protocol is called 'kss'; did you mean ks"),
        ("explore --protocol vectr", "no protocol is called 'vectr'; did you mean vector?"),
        ("topology shw x.yaml", "invalid choice: 'shw'; did you mean show?"),
        ("help chek", "no topic 'chek'; did you mean check?"),
        ("help completion csh", "no completion for 'csh'; did you mean zsh? there is bash, zsh, fish"),
    ],
)  # fmt: skip
def test_a_word_that_does_not_exist_is_answered_with_what_may_be_meant(words, hint, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == ExitCode.BAD_INPUT
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "hidden, extra, argv",
    [
        ("pyspark", "happened[spark]", ["analyze", "TRACE", "--out", "OUT"]),
        ("networkx", "happened[topology]", ["topology", "show", "GRAPH"]),
        ("yaml", "happened[topology]", ["topology", "show", "GRAPH"]),
        ("pyarrow", "happened", ["check", "TRACE"]),
        ("numba", "happened", ["ask", "why", "TRACE", "a#1"]),
        ("pyspark", "happened[spark]", ["analyze", "TRACE", "--only", "order", "--out", "OUT"]),
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


def test_exit_codes_are_printed_with_their_meanings(capsys):
    assert main(["help", "exit-codes"]) == 0
    help_text = capsys.readouterr().out
    assert re.findall(r"^  (\d+) +(.*)$", help_text, re.M) == [(str(c.value), m) for c, m in MEANINGS.items()]
    assert set(MEANINGS) == set(ExitCode)


def test_commands_return_exit_codes_by_name():
    folder = Path(happened.cli.__file__).parent
    number = re.compile(r"return \d+( if .*)?$|^[A-Z, _]+ = \d, \d", re.M)
    bare = {path.stem for path in folder.glob("*.py") if number.search(path.read_text())}
    assert not bare


@pytest.mark.parametrize(
    "words",
    ["check T", "analyze T --local --out O", "ask why T a#1", "ask path T a#1 a#1", "ask past T a#1",
     "ask future T a#1", "ask influenced T a#1", "ask critical-path T", "ask diff T T", "advise T"],
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


@pytest.mark.parametrize("module", ["happened.cli", "happened.cli.asking", "numba"])
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
    words = [module, "ask", "why", str(tmp_path), "a#1"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "happened: interrupted\n")


def parsers(parser):
    """A parser and those of its subcommands, by what is typed."""
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for under in action.choices.values():
                yield from parsers(under)


def test_whatever_writes_to_out_takes_force():
    for name, each in parsers(whole_parser()):
        options = each._option_string_actions
        # Keys are never overwritten, and a stream goes on with what is at --out.
        keeps = name in ("happened topology deploy", "happened stream")
        assert keeps or ("--out" in options) == ("--force" in options), name


def test_without_a_command_all_are_shown(capsys):
    assert main([]) == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert not said.out
    assert "a first look:" in said.err and all(f"{name} " in said.err for name in COMMANDS)


@pytest.mark.parametrize("asked", ["ask past", "check", "ask diff"])
def test_a_command_that_answers_in_its_process_does_not_import_pandas(asked, tmp_path):
    with TraceWriter(tmp_path / "run") as writer:
        writer.append(process="p", seq=1, kind="internal", label="first")
    words = {"ask past": ["first"], "check": [], "ask diff": [str(tmp_path / "run")]}[asked]
    code = """
import sys
sys.argv[0] = "happened"
from happened.cli import main
assert main() in (0, 3)
assert "pyarrow" in sys.modules and "pandas" not in sys.modules
from happened.cli.startup import allow_pandas
allow_pandas()
import pandas"""
    subprocess.run([sys.executable, "-c", code, *asked.split(), str(tmp_path / "run"), *words], check=True)


def test_the_commands_that_do_without_pandas_are_commands():
    assert COMMANDS.keys() >= IN_PROCESS
