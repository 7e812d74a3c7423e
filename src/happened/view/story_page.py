"""A story as a page: the viewer draws the steps up to the current one, and lists each process's knowledge.

In    what `happened play --json` prints (`sim/scenes.document`)
Out   one self-contained page
"""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from ..causality import encode
from ..causality.computation import DELIVER, INTERNAL, RECEIVE, SEND
from ..causality.linearization import Ints
from ..trace.schema import SCHEMA
from .prepared import Prepared
from .scene import as_text, described, differences, pack
from .viewer_page import html

Steps = list[dict[str, Any]]


def story_page(story: dict[str, Any]) -> str:
    steps = story["steps"]
    wrong = [step for step in steps if _is_fault(step)]
    present = {p for step in steps for p in (step["process"], *step["to"])}
    processes = [(p, name) for p, name in enumerate(story["names"]) if p in present]
    about = {
        "title": f"{story['protocol']}: {story['program']}",
        "sentence": story["notation"],
        "outcome": "violated" if wrong else "",
        "quarantine": [],
        "notes": [],
        "computations": [{"name": "", "events": len(steps), "faults": len(wrong)}] if steps else [],
        "story": {"steps": _told(story), "processes": processes},
    }
    return html(about, [as_text(_scene(story))] if steps else [])


def _scene(story: dict[str, Any]) -> bytes:
    """The viewer's scene: one event for each step, at the position of the step's number."""
    steps, table = story["steps"], _table(story)
    (computation,) = encode(table)
    header, arrays = described(Prepared(computation, table))
    row = computation.row[computation.chain]  # for each event of the scene, the index of its step
    place = np.empty(len(steps), np.int32)  # for each step, the number of its event
    place[row] = np.arange(len(steps), dtype=np.int32)
    source: Ints = np.full(len(steps), -1, np.int32)
    for step in steps:
        if step["departed"] and step["source"] == step["process"]:  # causes elsewhere are in `causes`
            source[place[step["number"] - 1]] = place[step["departed"] - 1]
    arrays |= {
        "kind": np.array([_kind(steps[k]) for k in row], np.uint8),
        "level": differences(row + 1),
        "source": source,
    }
    header |= {
        "depth": len(steps),
        "holds": [[int(place[a]), -1 if b is None else int(place[b])] for a, b in _holds(steps)],
        "faults": [
            {
                "title": f"Step {step['number']}",
                "told": "; ".join(step["wrong"]) or step["what"],
                "events": [int(place[step["number"] - 1])],
                "path": [],
                "levels": [step["number"]] * 2,
            }
            for step in steps
            if _is_fault(step)
        ],
    }
    return pack(header, arrays)


def _table(story: dict[str, Any]) -> pa.Table:
    """The steps as a trace of internal events, each arrival caused by the step that sent its copy."""
    names, rows, seen = story["names"], list[dict[str, Any]](), Counter[int]()
    for step in story["steps"]:
        seen[step["process"]] += 1
        left = rows[step["departed"] - 1] if step["departed"] else None
        name = ",".join(map(str, step["name"] or ()))
        rows.append(
            {
                "computation": "",
                "process": names[step["process"]],
                "seq": seen[step["process"]],
                "kind": "internal",
                "to": [names[to] for to in step["to"]] or None,
                "relevant": step["kind"] == "event",
                "causes": left and [{"process": left["process"], "seq": left["seq"]}],
                "label": f"({name})" if step["kind"] == "event" else name or None,
                "attributes": {"step": step["what"]},
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def _kind(step: dict[str, Any]) -> int:
    """The kind of event as which the step is drawn."""
    if step["kind"] == "arrive":
        return DELIVER if step["delivered"] else RECEIVE
    return SEND if step["kind"] == "send" else INTERNAL


def _holds(steps: Steps) -> list[tuple[int, int | None]]:
    """Indices of steps whose arrival is held, with those of the steps that release them; None: no step."""
    found = []
    for place, step in enumerate(steps):
        arrival = step["arrival"]
        if arrival is None or arrival in step["taken"]:
            continue
        later = range(place + 1, len(steps))
        here = (k for k in later if steps[k]["process"] == step["process"])
        found.append((place, next((k for k in here if arrival in steps[k]["taken"]), None)))
    return found


def _is_fault(step: dict[str, Any]) -> bool:
    return bool(step["wrong"]) or step["kind"] == "refused"


def _told(story: dict[str, Any]) -> Steps:
    """The page's description of each step."""
    steps = story["steps"]
    events: dict[tuple[int, int], int] = {}  # relevant event -> its step
    told = []
    for step in steps:
        told.append(
            {
                "process": step["process"],
                "shown": _shown(step),
                # print each row of a matrix on its own line
                "known": [(title, text.replace("] [", "]\n[")) for title, text in step["known"]],
                "held": step["held"],
                "follows": [events[event] for event in map(tuple, step["follows"]) if event in events],
            }
        )
        if step["kind"] == "event":
            events[tuple(step["name"])] = step["number"]
    if told:
        told[-1]["shown"] += [("holds", "", each) for each in story["end"]]
    return told


def _shown(step: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The lines of a step: each line's kind, rule and text. Knowledge is shown separately."""
    named = ((each, f" ({each['rule']})" if each["rule"] else "") for each in step["rules"])
    rules = {f"{each['about']} {each['what']}{rule}: {each['reason']}": each["rule"] for each, rule in named}
    held = {f"{step['process']} holds {each}" for each in step["held"]}
    shown = []
    for text in map(str.strip, step["text"][: len(step["text"]) - len(step["known"])]):
        if text in rules:
            shown.append(("rule", rules[text], text.replace(f" ({rules[text]})", "", 1)))
        elif text in held:
            shown.append(("holds", "", text))
        else:
            shown.append(("wrong" if text in step["wrong"] else "", "", text))
    return shown
