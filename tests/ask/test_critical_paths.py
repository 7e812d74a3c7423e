"""Critical paths in time: by hand, and the replay against a simulation that knows nothing of paths."""

from random import Random

import pytest
from brute import Brute

from causality.traces import number, table, wild
from effort import samples
from happened import ask


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
        brute = Brute(rows)
        at = {}
        for name in sorted(brute.rows, key=lambda name: len(brute.past(name))):  # causes before effects
            last = max((at[cause] for cause in brute.edges_into(name)), default=0)
            at[name] = brute.rows[name]["time"] = last + random.randint(1, 50)
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
