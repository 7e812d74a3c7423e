"""`happened node` for every box of a topology. While messages pass, a router is killed -9 for good and is
succeeded, others are killed and come back, a process joins; then the trace is judged, by `happened check` in
the short version and by `happened analyze` on Spark in the long ones."""

import json
import random
import shutil
import threading
import time

import pytest
import yaml
from test_site_changes_kill import EXAMPLES, FAULTS, ROUTING, SITES, Heard, Site, site_file

from happened.cli import main
from happened.ordering import able
from happened.ordering.capabilities import ReplacesForwarder
from happened.topology import derive, to_document
from happened.topology.replacement import with_heir, without

WITNESSED = [name for name in ROUTING if name in able(ReplacesForwarder)]
HUB = (
    "processes: [a, b]\nrouters: [f, w]\nseparators: [[f, w]]\n"
    "links: [[f, w], [a, f], [a, w], [b, f], [b, w]]\n"
)


class Failing(Site):
    """A site in which one router fails for good."""

    def __init__(self, tmp_path, file, protocol, seed):
        super().__init__(tmp_path, file, protocol)
        self.dice = random.Random(seed)
        self.applications = list(self.topology.applications)
        self.sent = dict.fromkeys(self.applications, 0)
        self.due = dict.fromkeys(self.applications, 0)  # how many messages are for whom
        self.watchdog = threading.Timer(400, lambda: [each.process.kill() for each in self.running.values()])
        self.watchdog.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watchdog.cancel()
        for each in self.running.values():
            each.process.kill()

    def traffic(self, count):
        for _ in range(count):
            for name in self.applications:
                to = self.dice.sample(self.applications, self.dice.randint(1, min(4, len(self.applications))))
                self.running[name].say(to=to, text="x")
                self.sent[name] += 1
                for each in to:
                    self.due[each] += 1

    def fail(self, name):
        self.running.pop(name).kill()

    def again_some(self, names, count):
        for _ in range(count):
            self.again(self.dice.choice(sorted(set(names) & self.running.keys())))

    def until_without(self, failed):
        """Wait until everybody has heard the end of it, killed meanwhile or not."""
        self.until_members(self.applications, lambda known: failed not in known)

    def change(self, following):
        """The links of another topology, without its zones, and a newcomer beside the first application."""
        said = {
            "processes": [*following.applications, "newcomer"],
            "routers": sorted(following.routers),
            "links": [*map(list, following.graph.edges), [self.applications[0], "newcomer"]],
        }
        file = self.folder / "next.yaml"
        file.write_text(yaml.safe_dump(said))
        at = self.running[self.applications[-1]]
        before = len([said for said in at.said if "changed" in said])
        at.say(topology=str(file), addresses=self.where)
        at.until("changed", before + 1)
        members = next(said["members"] for said in reversed(at.said) if "changed" in said)
        self.configure("newcomer", members)
        self.running["newcomer"] = self.start("newcomer")
        self.until_members(self.applications, lambda known: "newcomer" in known)
        self.applications.append("newcomer")
        self.sent["newcomer"] = self.due["newcomer"] = 0

    def finish(self):
        """Wait until all is delivered and nothing is left on its way; then end everybody."""
        for name in self.applications:
            self.running[name].until("sent", self.sent[name])
        for name in self.applications:
            self.running[name].until("number", self.due[name])
        self.drain()
        self.end()
        errors = [
            said
            for each in self.running.values()
            for said in each.said
            if "error" in said and "succeed" not in said["line"]
        ]
        assert not errors, errors[:3]

    def holds_on_spark(self):
        code, summary = self.analyze()
        sent, due = sum(self.sent.values()), sum(self.due.values())
        assert (summary["messages"], summary["deliveries_judged"]) == (sent, due)
        assert (code, *(summary[fault] for fault in FAULTS)) == (0,) * (1 + len(FAULTS))


def watched(topology):
    """A router that has a witness, and the witness."""
    ((failed, (heir, *_)),) = derive(topology).witnesses.items()
    return failed, heir


@pytest.mark.parametrize("protocol", WITNESSED)
def test_a_witness_takes_over_for_good(tmp_path, seed, protocol, capsys):
    file = tmp_path / "hub.yaml"
    file.write_text(HUB)
    with Failing(tmp_path, file, protocol, seed) as system:
        system.traffic(5)
        system.running["b"].until("sent", 3)
        system.fail("f")
        system.traffic(5)
        system.running["w"].say(succeed="f", heir="w")
        system.running["w"].until("succeeded")
        system.traffic(5)
        system.finish()
    capsys.readouterr()
    code = main(["check", str(system.folder / "trace"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["delivery"]["lost"]) == (0, 0), told


@pytest.mark.slow
@pytest.mark.parametrize("protocol", WITNESSED)
@pytest.mark.parametrize("site", SITES)
def test_a_witness_takes_over_for_good_under_kills(tmp_path, seed, site, protocol):
    with Failing(tmp_path, site_file(site, tmp_path), protocol, seed) as system:
        failed, heir = watched(system.topology)
        everybody = sorted(system.topology.routers)
        system.traffic(40)
        system.again_some(everybody, 3)
        system.fail(failed)
        system.traffic(20)
        system.again_some([*everybody, heir], 1)
        system.running[heir].say(succeed=failed, heir=heir)
        time.sleep(system.dice.uniform(0, 0.5))
        system.again(heir)
        system.running[heir].say(succeed=failed, heir=heir)  # refused if it was heard before the kill
        system.again_some(set(everybody) - {heir}, 2)
        system.until_without(failed)
        system.traffic(20)
        system.again_some(everybody, 2)
        system.change(without(system.topology, failed, heir))
        system.traffic(10)
        system.again_some(everybody, 1)
        system.finish()
    system.holds_on_spark()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ROUTING)
def test_a_router_without_witness_is_succeeded_and_what_is_lost_is_told(tmp_path, seed, protocol):
    """`po` of the departments is the only way between two sites: each of them is told."""
    with Failing(tmp_path, EXAMPLES / "departments.yaml", protocol, seed) as system:
        routers = sorted(system.topology.routers - {"po"})
        system.traffic(40)
        system.again_some(routers, 2)
        system.fail("po")
        system.traffic(5)
        asked = {"succeed": "po", "heir": "spare", "how": "collection", "addresses": system.where}
        for at in ("ana", "gil"):
            system.running[at].say(**asked)
        system.again_some(routers, 2)
        (members,) = system.running["ana"].until("members")
        system.topology = with_heir(system.topology, "po", "spare")
        (system.folder / "next.yaml").write_text(yaml.safe_dump(to_document(system.topology)))
        system.configure("spare", members)
        system.running["spare"] = system.start("spare")
        system.until_without("po")
        system.traffic(20)
        lost = 0
        for name in system.applications:
            running = system.running[name]
            running.until("sent", system.sent[name])
            for asked in range(100):
                running.say(show="lost")
                told = running.until("lost", asked + 1)[-1]
                if not running.until("unaccounted", asked + 1)[-1]:
                    break
                time.sleep(0.1)
            lost += sum(told.values())
            for to, count in told.items():
                system.due[to] -= count
        system.finish()
    code, summary = system.analyze()
    assert {fault: summary[fault] for fault in FAULTS} == dict.fromkeys(FAULTS, 0) | {"lost": lost}
    assert code == (3 if lost else 0)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ROUTING)
def test_a_router_is_started_from_its_journal_on_another_machine(tmp_path, seed, protocol):
    file, elsewhere = tmp_path / "hub.yaml", tmp_path / "elsewhere"
    file.write_text(HUB)
    with Failing(tmp_path, file, protocol, seed) as system:
        failed = next(name for name in derive(system.topology).path("a", "b")[1:-1])
        system.traffic(20)
        system.running["b"].until("sent", 5)
        system.fail(failed)
        system.traffic(5)
        shutil.copytree(system.folder, elsewhere, ignore=shutil.ignore_patterns("trace"))
        for lost in system.folder.glob(f"{failed}.*"):
            lost.unlink()
        system.running[failed] = Heard(elsewhere / f"{failed}.toml")
        system.traffic(5)
        system.finish()
    system.holds_on_spark()
