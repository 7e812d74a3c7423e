"""What a notebook shows below a cell."""

from random import Random
from xml.etree import ElementTree

from causality.traces import busy, causal, number, table
from happened.causality import check
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
