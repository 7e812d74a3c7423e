"""One spelling and one meaning of each option; words repeated from other rooms; completion; topics; and every
command that a page, an error or a docstring names."""

import argparse
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from happened.causality import ORDERS
from happened.causality.computation import GAPS
from happened.causality.questions.stamp import TIMESTAMPS
from happened.cli import COMMANDS, main, options, whole_parser
from happened.cli.ask import FORMS
from happened.cli.completion import places, script
from happened.cli.topics import SHELLS, TOPICS

ROOT = Path(__file__).resolve().parents[2]
PARSER = whole_parser()


def leaves(parser, words=()):
    """Every parser, by the words that lead to it."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, under in action.choices.items():
                yield from leaves(under, (*words, name))


def test_an_option_means_the_same_wherever_it_is_taken():
    """Its explanation begins with the same words; what follows a semicolon is what it does in one command."""
    meanings, places = defaultdict(set), defaultdict(list)
    for words, parser in leaves(PARSER):
        for action in parser._actions:
            for name in action.option_strings:
                assert action.help, f"{' '.join(words)} {name} is not explained"
                meanings[name].add((action.metavar, re.split(r";| \(default", action.help)[0]))
                places[name].append(" ".join(words))
    several = {name: (meanings[name], places[name]) for name in meanings if len(meanings[name]) > 1}
    assert not several
    assert len(meanings) > 80 and places["--json"].count("ask why") == 1


def test_options_of_several_commands_are_in_the_table_of_those():
    taken = defaultdict(set)
    for words, parser in leaves(PARSER):
        for name in parser._option_string_actions:
            taken[name].add(words)
    shared = {name for name in taken if len(taken[name]) > 1} - {"-h", "--help"}
    # Added by one function for all who take them.
    by_function = {"--clock-order", "--gaps", "--past", "--future", "--window", "--time"}
    assert shared - by_function <= options.COMMON.keys() <= taken.keys()


def test_words_of_other_rooms_are_repeated_as_they_are():
    assert (options.GAPS, options.JUDGED, options.TIMESTAMPS) == (GAPS, ORDERS, TIMESTAMPS)


def test_the_forms_that_the_table_names_are_there():
    forms = {words for words, _ in leaves(PARSER)}
    assert all((verb, form) in forms for verb, command in COMMANDS.items() for form in command.forms)
    assert COMMANDS["ask"].forms == tuple(FORMS)


def named_commands():
    """`happened WORD …` as pages, errors, docstrings and examples have it: where, and the words."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    for folder, endings in {
        "docs": (".md",), "src": (".py",), "examples": (".py", ".md", ".ipynb"), "bench": (".py", ".md"),
        "scripts": (".py",),
    }.items():  # fmt: skip
        pages += [path for path in (ROOT / folder).rglob("*") if path.suffix in endings]
    begins = r"(?:[`$\"'(>:]|^ *|&& |\| |: |with )"
    for path in pages:
        for found in re.finditer(begins + r"happened ((?:[a-z][a-z-]*[ `'\"\n]?)+)", path.read_text(), re.M):
            yield path.relative_to(ROOT), re.split(r"[ `'\"\n]", found[1])


NO_COMMANDS = {
    "before": "English",
    "between": "English",
    "order": "docs/pipeline.md: the description of a job on Spark",
    "authority": "net/identity.py and cli/keys.py: the name in a certificate",
    "medium": "net/udp_multicast.py: what a key is derived for",
    "nats": "net/nats_security.py: likewise",
    "signature": "net/signatures.py: likewise",
}


def test_every_command_that_is_named_exists():
    forms = {words for words, _ in leaves(PARSER)} | {("help",)}
    verbs_with_forms = {words[0] for words in forms if len(words) > 1} - {"node"}
    count = 0
    for path, words in named_commands():
        if words[0] in NO_COMMANDS:
            continue
        count += 1
        assert (words[0],) in forms, f"{path} names `happened {words[0]}`"
        if words[0] in verbs_with_forms and len(words) > 1 and words[1]:
            assert tuple(words[:2]) in forms, f"{path} names `happened {' '.join(words[:2])}`"
    assert count > 200


def options_named(text):
    """Each `happened …` of a page that is set as code, with the options it gives."""
    for line in re.findall(r"happened ([a-z][^`\n]*)", text):
        words = line.split("   ")[0].split()
        yield (
            line,
            [word.partition("=")[0].strip("[].,") for word in words if word.strip("[").startswith("--")],
            words,
        )


def test_every_option_that_a_page_gives_to_a_command_is_one_of_it():
    parsers = dict(leaves(PARSER))
    count = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]:
        for line, given, words in options_named(page.read_text()):
            at = max((w for w in parsers if w == tuple(words[: len(w)])), key=len)
            for name in given:
                if at and re.fullmatch(r"--[a-z-]+", name):
                    count += 1
                    assert name in parsers[at]._option_string_actions, f"{page.name}: happened {line}"
    assert count > 100


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", "check"),
        ("che", "check"),
        ("ask cr", "critical-path"),
        ("ask why run --de", "--depth"),
        ("check run --order ca", "causal"),
        ("check --order fifo run --nec", "--necessary"),
        ("node --co", "--config"),
        ("node keys sh", "shared"),
        ("export run --to shi", "shiviz"),
        ("help comp", "completion"),
    ],
)
def test_bash_completes(typed, offered, tmp_path):
    (tmp_path / "happened.bash").write_text(script("bash", TOPICS))
    words = ["happened", *typed.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    code = f". ./happened.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _happened; "
    done = subprocess.run(
        ["bash", "-c", code + 'echo "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert offered in done.stdout.split() and done.stderr == ""
    if typed.split(" ")[-1]:
        assert all(word.startswith(typed.split(" ")[-1]) for word in done.stdout.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_verb_option_and_value(shell, capsys):
    assert main(["help", "completion", shell]) == 0
    said = capsys.readouterr().out
    assert len(places(TOPICS)) > 30
    for place in places(TOPICS):
        for word in (*place.words.split(), *place.following):
            assert word in said
        for option in place.options:
            assert option.name[2:] in said and all(value in said for value in option.values)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_says_something(topic, capsys):
    assert main(["help", topic]) == 0
    assert len(capsys.readouterr().out) > 100


def test_help_lists_topics_and_explains_verbs_and_forms(capsys):
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {topic} " in listed for topic in TOPICS)
    for words in (["check"], ["ask", "why"]):
        with pytest.raises(SystemExit) as end:
            main(["help", *words])
        assert end.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: happened {' '.join(words)} ")
