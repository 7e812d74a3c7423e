"""What a notebook shows below a cell."""

from random import Random
from types import SimpleNamespace
from xml.etree import ElementTree

import pyarrow as pa

import happened
from causality.traces import busy, causal, number, table
from happened.causality import check, check_order
from happened.core.errors import CausalityError
from happened.net.batch import Delivery
from happened.net.message import Message
from happened.net.payloads import BYTES, Payloads
from happened.ordering import protocols
from happened.ordering.messages import Application
from happened.view import show


def test_a_trace_is_drawn_with_the_sentence_of_the_judge(seed):
    rows = busy(Random(seed))
    html = show(table(rows))._repr_html_()
    picture = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    assert len(picture.findall(".//{*}title")) == len(rows)
    assert "causal order" in html and repr(show(table(rows))) == f"<{len(rows)} events of 1 computation>"


def test_of_a_long_trace_the_beginning_is_drawn(seed):
    rows = number(causal(Random(seed), messages=200))
    html = show(table(rows))._repr_html_()
    picture = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    assert 0 < len(picture.findall(".//{*}title")) <= 300 < len(rows)
    assert f"{len(rows):,} events" in html
    assert show(table([]))._repr_html_() == "<p>No events.</p>"


def test_markup_in_a_trace_stays_text():
    evil = "<script>x</script>"
    chains = {
        evil: [{"kind": "send", "message": f"{evil}{k}", "to": ["q"]} for k in range(2)],
        "q": [{"kind": "deliver", "message": f"{evil}{k}"} for k in (1, 0)],
    }
    whole = table(number(chains, evil))
    assert "<script" not in show(whole)._repr_html_()
    judged = check(whole)._repr_html_()
    assert "<script" not in judged and "VIOLATED" in judged and "<pre>" in judged


class Html:
    """The HTML formatter of IPython, as far as an extension sees it."""

    def __init__(self):
        self.printers = {}

    def for_type(self, kind, printer):
        self.printers[kind] = printer


def test_the_extension_shows_traces_and_leaves_other_tables_alone(seed):
    html = Html()
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": html}))
    happened.load_ipython_extension(shell)
    printer = html.printers[pa.Table]
    rows = busy(Random(seed))
    assert printer(table(rows)).count("<title>") == len(rows)
    assert printer(pa.table({"a": [1]})) is None
    assert printer(table(rows).select(["process", "seq"])) is None
    broken = table(number({"p": [{"kind": "internal", "causes": [{"process": "<b>", "seq": 9}]}]}))
    assert "no trace by themselves" in printer(broken) and "<b>" not in printer(broken)


def test_messages_and_verdicts_show_what_they_say():
    [send] = happened.create("ks", 0, 3).multicast([1], b"<b>").effects
    assert send.message._repr_html_().startswith("<code>M(0,1)→{1}; nothing</code>")
    chains = {
        "p": [{"kind": "send", "message": m, "to": ["q"]} for m in "ab"],
        "q": [{"kind": "deliver", "message": m} for m in "ba"],
    }
    shown = check_order(table(number(chains)))._repr_html_()
    assert "<strong>causal order VIOLATED" in shown and "q delivered b before a" in shown


def test_every_message_of_every_protocol_shows_itself():
    shown = 0
    for name in protocols():
        for message in sample_messages(name):
            shown += 1
            assert "</code>" in message._repr_html_(), name
    assert shown > 20


def sample_messages(name):
    """Those that the first process sends to all others, of protocols that need not be told anything more."""
    try:
        effects = happened.create(name, 0, 3).multicast([1, 2], b"x").effects
    except CausalityError:
        return []
    return [each.message for each in effects if isinstance(getattr(each, "message", None), Application)]


def test_a_delivered_message_shows_its_headers_and_the_beginning_of_its_payload():
    payloads = Payloads(BYTES, headers=True)
    sealed = payloads.pack(b"<i>" + b"x" * 300, {"kind": "<order>"})
    message = Message(SimpleNamespace(payloads=payloads), Delivery(1, 0, 7, sealed), "<alice>", attempt=2)
    html = message._repr_html_()
    assert "&lt;alice&gt;:7" in html and "&lt;order&gt;" in html and "(303 bytes)" in html
    assert "<i>" not in html and "attempt" in html
