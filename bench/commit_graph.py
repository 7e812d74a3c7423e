"""Makes a commit graph like that of a busy repository, as JSON lines with an id and parents.

    python bench/commit_graph.py [--commits 160000] [--seed 1] > commits.jsonl

The graph has a main line; thousands of short branches that begin a little behind its head, most of which are
merged, and some of which merge the main line before; abandoned branches, which stay heads; and release
branches that live long and are merged back now and then. A fifth of the commits are merges, some of them
redundant. There are so many chains that vectors with an entry per chain would be wide.
"""

import argparse
import json
import sys
from random import Random
from typing import TextIO

BRANCHES, RELEASES = 60, 40
"""Short branches open at a time, and release branches in all."""


def commit_graph(commits: int, seed: int) -> list[list[int]]:
    """The parents of each commit; causes come first."""
    random = Random(seed)
    parents: list[list[int]] = [[]]
    main = [0]  # the main line
    branches: list[int] = []  # heads of the open short branches
    releases: list[int] = []

    def commit(*of: int) -> int:
        parents.append(list(of))
        return len(parents) - 1

    while len(parents) < commits:
        chance = random.random()
        if chance < 0.2 or (chance > 0.4 and not branches):
            main.append(commit(main[-1]))
        elif chance < 0.4 and len(branches) < BRANCHES:
            behind = min(len(main), 1 + int(random.expovariate(1 / 20)))
            branches.append(commit(main[-behind]))
        elif chance < 0.77:
            at = random.randrange(len(branches))
            takes_in = random.random() < 0.05
            branches[at] = commit(branches[at], main[-1]) if takes_in else commit(branches[at])
        elif chance < 0.96:
            head = branches.pop(random.randrange(len(branches)))
            if random.random() < 0.9:
                main.append(commit(main[-1], head))
        elif len(parents) > commits * len(releases) // RELEASES:
            releases.append(commit(main[-1]))
        elif releases:
            at = random.randrange(max(0, len(releases) - 5), len(releases))
            releases[at] = commit(releases[at])
            if random.random() < 0.1:
                main.append(commit(main[-1], releases[at]))
    return parents[:commits]


def write_commits(file: TextIO, parents: list[list[int]]) -> None:
    for number, of in enumerate(parents):
        record = {"id": f"{number:040x}", "parents": [f"{parent:040x}" for parent in of]}
        file.write(json.dumps(record | {"commit_time": 1_100_000_000 + 60 * number}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=160_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write_commits(sys.stdout, commit_graph(arguments.commits, arguments.seed))


if __name__ == "__main__":
    main()
