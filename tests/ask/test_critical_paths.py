"""Critical paths in time: by hand, and the replay against a simulation that knows nothing of paths."""

from random import Random

import pytest
from brute import Brute

from causality.traces import number, table, wild
from effort import samples
from happened import ask
from happened.trace.readers import Options
from happened.trace.readers.span_drafts import Instance, Span
from happened.trace.readers.spans import assemble
from happened.trace.writer import table_from_rows


def call(trace, begin=0, slow=30):
    """web calls cart, which asks db; and, meanwhile, ads: (process, kind, message, to, time)."""
    web = [
        (0, "send", "get", "cart"),
        (1, "send", "ad", "ads"),
        (90, "deliver", "got"),
        (95, "deliver", "shown"),
    ]
    cart = [
        (10, "deliver", "get"),
        (20, "send", "ask", "db"),
        (60, "deliver", "told"),
        (80, "send", "got", "web"),
    ]
    db = [(25, "deliver", "ask"), (25 + slow, "send", "told", "cart")]
    ads = [(5, "deliver", "ad"), (70, "send", "shown", "web")]
    chains = {"web": web, "cart": cart, "db": db, "ads": ads}
    return number(
        {
            f"{process}-1": [
                {
                    "kind": kind,
                    "message": message,
                    "time": (begin + time) * 1000,
                    "to": [f"{to[0]}-1"] if to else None,
                    "attributes": [("service", process), ("trace", trace)],
                }
                for time, kind, message, *to in events
            ]
            for process, events in chains.items()
        },
        trace,
    )


def test_where_the_time_of_one_request_went():
    answer = ask.critical_path(table(call("r1")))
    assert (answer.requests, answer.took, answer.untimed, answer.backwards) == (("r1",), (95_000,), 0, 0)
    path = [(segment.place, segment.took // 1000) for segment in answer.slowest.segments]
    assert path == [
        ("web → cart", 10), ("cart", 10), ("cart → db", 5), ("db", 30), ("db → cart", 5), ("cart", 20),
        ("cart → web", 10), ("web", 5),
    ]  # fmt: skip
    shares = {share.place: (share.took // 1000, share.saved // 1000) for share in answer.shares}
    # Without the db, cart's answer is there at 60; the last event then waits for `shown`, sent at 70, and
    # follows that after five, as it had followed cart's answer: at 75.
    assert shares["db"] == (30, 20)
    assert shares["cart"] == (30, 20)
    assert shares["web"] == (5, 5)
    assert shares["cart → db"] == (5, 5)


def test_processes_instead_of_services():
    answer = ask.critical_path(table(call("r1")), by="process")
    assert {share.place for share in answer.shares} >= {"web-1", "db-1", "web-1 → cart-1"}


def test_the_distribution_of_many_requests():
    rows = [row for n in range(100) for row in call(f"r{n:03d}", begin=1000 * n, slow=30 if n < 90 else 33)]
    answer = ask.critical_path(table(rows))
    assert len(answer.took) == 100 and set(answer.took) == {95_000}
    shares = {share.place: share for share in answer.shares}
    assert shares["db"].requests == 100
    assert shares["db"].took == (90 * 30 + 10 * 33) * 1000
    assert answer.quantile(0.5) == answer.quantile(0.99) == 95_000
    one = ask.critical_path(table(rows), "r095")
    assert one.requests == ("r095",) and one.slowest.request == "r095"


def test_quantiles_are_times_that_occurred():
    rows = [
        row
        for n in range(1, 11)
        for row in number(
            {"p": [{"kind": "internal", "time": 0}, {"kind": "internal", "time": n}]}, f"c{n:02d}"
        )
    ]
    answer = ask.critical_path(table(rows))
    assert [answer.quantile(share) for share in (0.1, 0.5, 0.9, 0.99, 1.0)] == [1, 5, 9, 10, 10]
    assert answer.slowest.request == "c10"


@pytest.mark.parametrize("rows", [[{"kind": "internal"}] * 3, [{"kind": "internal", "time": 5}]])
def test_without_times_nothing_is_told(rows):
    with pytest.raises(ask.NoTimes, match="cannot be told"):
        ask.critical_path(table(number({"p": rows})))


def test_requests_without_times_are_counted():
    rows = number({"p": [{"kind": "internal", "time": t} for t in (1, 5)]}, "a")
    rows += number({"p": [{"kind": "internal"}] * 2}, "b")
    answer = ask.critical_path(table(rows))
    assert (answer.requests, answer.untimed) == (("a",), 1)


def event(trace, time, causes=()):
    """An internal event of a request, caused by events p#1, q#2, …"""
    named = [cause.partition("#") for cause in causes]
    causes = [{"process": process, "seq": int(seq)} for process, _, seq in named]
    return {"kind": "internal", "time": time, "causes": causes, "attributes": [("trace", trace)]}


def saved(chains, request, place):
    answer = ask.critical_path(table(number(chains, "c")), request)
    (share,) = [share for share in answer.shares if share.place == place]
    return share.took, share.saved


def test_a_request_does_not_begin_sooner_because_its_process_was_idle():
    """p takes 20 of the path; without them q would wait for s; how long p had rested does not matter."""
    chains = {
        "p": [event("r1", 0), event("r2", 100), event("r2", 120)],
        "s": [event("r2", 115, ["p#2"])],
        "q": [event("r2", 119, ["s#1"]), event("r2", 125, ["p#3"])],
    }
    assert saved(chains, "r2", "p") == (20, 1)


def test_what_came_before_a_request_is_not_saved_in_it():
    """The request was at p, then at q, and why it came there is not recorded: q's own 30 are all there is."""
    chains = {"p": [event("r2", 100)], "q": [event("r1", 50), event("r2", 120), event("r2", 150)]}
    assert saved(chains, "r2", "q") == (30, 30)


def test_time_before_an_event_without_a_known_cause_is_at_no_place():
    """Nothing led from p to q, so nothing was under way between them; nor is it q's own time."""
    chains = {"p": [event("r", 0), event("r", 10)], "q": [event("r", 50), event("r", 60)]}
    answer = ask.critical_path(table(number(chains, "c")))
    segments = [(each.place, each.begin.id, each.end.id, each.took) for each in answer.slowest.segments]
    assert segments == [("(unknown)", "p#1", "q#1", 50), ("q", "q#1", "q#2", 10)]
    assert [(share.place, share.took, share.saved) for share in answer.shares] == [
        ("(unknown)", 50, 0),
        ("q", 10, 10),
    ]


def test_events_at_one_time_are_a_path_of_no_length():
    answer = ask.critical_path(table(number({"p": [event("r", 5)], "q": [event("r", 5)]}, "c")))
    assert [segment.took for segment in answer.slowest.segments] == [0]


def test_a_request_does_not_end_before_the_last_of_its_events():
    """Without p's time the request would end with what q does meanwhile, at 90, and not at once."""
    chains = {"p": [event("r", 0), event("r", 100)], "q": [event("r", 0, ["p#1"]), event("r", 90)]}
    assert saved(chains, "r", "p") == (100, 10)


@pytest.mark.parametrize("late", ["a", "b"])
def test_of_causes_at_one_time_the_one_that_waited_longer_was_waited_for(late):
    chains = {name: [event("r", 90 if name == late else 10), event("r", 100)] for name in "ab"}
    chains["z"] = [event("r", 100), event("r", 105, ["a#2", "b#2"])]
    answer = ask.why(table(number(chains)), "z#2")
    assert {cause.event.id: cause.last for cause in answer.causes} == {
        "z#1": False,
        "a#2": late == "a",
        "b#2": late == "b",
    }


def segments(chains, request):
    answer = ask.critical_path(table(number(chains, "c")), request)
    return [(each.place, each.begin.id, each.end.id, each.took) for each in answer.slowest.segments]


def test_what_others_had_in_the_queue_before_it_is_no_part_of_a_request():
    """q handles r1, whose message came late, and then r2, which waited behind it, between p and q."""
    chains = {
        "o": [event("r1", 0), event("r1", 95)],
        "p": [event("r2", 10), event("r2", 20)],
        "q": [event("r1", 100, ["o#2"]), event("r2", 110, ["p#2"]), event("r2", 115)],
    }
    assert segments(chains, "r2") == [
        ("p", "p#1", "p#2", 10),
        ("p → q", "p#2", "q#2", 90),
        ("q", "q#2", "q#3", 5),
    ]
    assert saved(chains, "r2", "p → q") == (90, 90)


def test_what_another_request_did_for_it_is_a_part_of_a_request():
    """q works for r1 in a request of its own, and answers."""
    chains = {
        "p": [event("r1", 0), event("r1", 100, ["q#2"])],
        "q": [event("r2", 10, ["p#1"]), event("r2", 80)],
    }
    path = [("p → q", "p#1", "q#1", 10), ("q", "q#1", "q#2", 70), ("q → p", "q#2", "p#2", 20)]
    assert segments(chains, "r1") == path
    assert saved(chains, "r1", "q") == (70, 70)
    assert segments(chains, "r2") == [("q", "q#1", "q#2", 70)]


@pytest.mark.sampled
def test_paths_keep_to_what_their_requests_led_to_and_add_up(seed):
    """Events belong to requests, or none, at random. What all requests together took, and would save, is the
    sum of what each does by itself.
    """
    judged = 0
    for n in range(samples(100)):
        random = Random(seed * 7919 + n)
        rows = wild(random, "run", steps=60)
        for row in rows:
            trace = random.choice(["r1", "r1", "r2", "r3", None])
            row["attributes"] = {"trace": trace} if trace else {}
        brute, at = timed(rows, random)
        members = {}
        for name in at:
            members.setdefault(brute.rows[name]["attributes"].get("trace"), set()).add(name)
        if members.keys() <= {None}:
            continue
        known = {request for request, of in members.items() if request and len(of) > 1}
        if not known:
            continue
        answer = ask.critical_path(table(rows))
        assert set(answer.requests) == known
        sums = {}
        for request in known:
            alone = ask.critical_path(table(rows), request)
            led_to = {name for name in at if name in members[request] or brute.past(name) & members[request]}
            for segment in alone.slowest.segments:
                ends = [("run", each.process, each.seq) for each in (segment.begin, segment.end)]
                assert led_to.issuperset(ends) and segment.took >= 0
            mine = sorted(at[name] for name in members[request])
            assert alone.took == (mine[-1] - mine[0],) == (sum(s.took for s in alone.slowest.segments),)
            for share in alone.shares:
                took, saved, requests = sums.get(share.place, (0, 0, 0))
                sums[share.place] = took + share.took, saved + share.saved, requests + 1
            judged += len(alone.slowest.segments)
        assert {share.place: (share.took, share.saved, share.requests) for share in answer.shares} == sums
    assert judged > samples(100)


def timed(rows, random):
    """(brute, at): every event a while after the last of its causes."""
    brute = Brute(rows)
    at = {}
    for name in sorted(brute.rows, key=lambda name: len(brute.past(name))):  # causes before effects
        last = max((at[cause] for cause in brute.edges_into(name)), default=0)
        at[name] = brute.rows[name]["time"] = last + random.randint(1, 50)
    return brute, at


def test_of_causes_that_are_equal_in_time_one_from_elsewhere_was_waited_for():
    chains = {"a": [event("r", 100)], "z": [event("r", 100), event("r", 105, ["a#1"])]}
    answer = ask.why(table(number(chains)), "z#2")
    assert {cause.event.id: cause.last for cause in answer.causes} == {"z#1": False, "a#1": True}


@pytest.mark.sampled
def test_paths_are_chains_that_last_as_long_as_the_request_and_savings_are_what_a_rerun_saves(seed):
    """A rerun by recursion over sets of causes, with the durations of one place taken out."""
    judged = 0
    for n in range(samples(400)):
        random = Random(seed * 7919 + n)
        rows = wild(random, "run", steps=25)
        brute, at = timed(rows, random)
        if len(rows) < 2:
            continue
        answer = ask.critical_path(table(rows))
        begin, end = min(at.values()), max(at.values())
        assert answer.took == (end - begin,)
        assert sum(segment.took for segment in answer.slowest.segments) == end - begin
        assert answer.backwards == 0
        for segment in answer.slowest.segments:
            one, other = (("run", each.process, each.seq) for each in (segment.begin, segment.end))
            assert segment.place == "(unknown)" or one in brute.past(other)
        first = min(at, key=lambda name: (at[name], len(brute.past(name))))
        for share in answer.shares:
            assert share.took == sum(s.took for s in answer.slowest.segments if s.place == share.place)
            if sum(time == begin for time in at.values()) == sum(time == end for time in at.values()) == 1:
                assert share.saved == min(
                    share.took, end - max(rerun(brute, at, share.place, first).values())
                )
                judged += 1
    assert judged > samples(400)


def rerun(brute, at, place, first):
    then = {}

    def when(name):
        if name not in then:
            causes = brute.edges_into(name)
            waited = waited_for(brute, at, name)
            if waited is None or name == first:
                then[name] = at[name]
            else:
                step = waited[1] if waited[1] == name[1] else f"{waited[1]} → {name[1]}"
                took = 0 if step == place else at[name] - at[waited]
                then[name] = max(when(cause) for cause in causes) + took
        return then[name]

    return {name: when(name) for name in at}


def waited_for(brute, at, name):
    """The last cause: of several at one time the one that waited longer itself, then one from elsewhere."""

    def lateness(cause):
        own = max((at[each] for each in brute.edges_into(cause)), default=-1)
        return at[cause], own, cause[1:] != (name[1], name[2] - 1)

    return max(brute.edges_into(name), key=lateness, default=None)


def test_a_call_whose_client_recorded_nothing_bounds_how_far_clocks_are_apart():
    """app calls two services without spans of its own for that, so that neither the requests nor the answers
    have times. All lies within the 100 ns of the outermost call.
    """
    spans = [
        ("a", "web", "client", 1000, 1100, None),
        ("b", "app", "server", 600, 650, "a"),
        ("c", "pay", "server", 100, 130, "b"),
        ("d", "stock", "server", 5200, 5230, "b"),
    ]
    drafts = [
        Span("t", name, Instance(at, at), name, kind, start, end, parents=(f"t:{parent}",) if parent else ())
        for name, at, kind, start, end, parent in spans
    ]
    rows = assemble((each.draft("log", line) for line, each in enumerate(drafts)), Options()).rows
    answer = ask.critical_path(table_from_rows(rows))
    assert (answer.took, answer.backwards) == ((100,), 0)
    assert all(segment.took >= 0 for segment in answer.slowest.segments)
