"""A mapping of fields reads spans of any JSON lines or CSV."""

MAP = "span=id,trace=req,parent=up,service=svc,instance=pod,kind=k,start=t0:us,end=t1:us,label=op,key=order"
CSV = """\
id,req,up,svc,pod,k,t0,t1,op,order
1,r,,shop,s1,client,10,20,call,
2,r,1,back,b1,server,12,15,serve,
"""


def test_a_table_of_spans(read):
    found = read("map-spans", CSV, map=MAP)
    assert found.quarantined == []
    assert [(row["process"], row["kind"], row["time"]) for row in found.rows] == [
        ("shop@s1", "send", 10_000),
        ("shop@s1", "deliver", 20_000),
        ("back@b1", "deliver", 12_000),
        ("back@b1", "send", 15_000),
    ]
    assert found.counts[0]["services"] == 2


def test_a_span_of_nobody_is_quarantined(read):
    found = read("map-spans", CSV + "3,r,1,,,server,1,2,x,\n", map=MAP)
    assert len(found.rows) == 4
    assert "has no service or instance" in found.reasons()[0]
