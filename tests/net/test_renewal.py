"""Certificates that expire while nodes run, and new ones in their place."""

import asyncio
import os
import signal

import pytest
from test_node import addresses, run, take, until

from happened.core.errors import LocalProtocolError
from happened.net import Limits, MutualTls, Node, Plaintext, identity
from happened.net.errors import IdentityError

SECOND = 1 / 86_400  # of a day


@pytest.fixture
def pki(tmp_path):
    folder = tmp_path / "pki"
    identity.make_authority(folder)
    identity.issue(folder, "a")
    return folder


def renew(pki, name, days):
    for kind in ("pem", "key"):
        (pki / f"{name}.{kind}").unlink(missing_ok=True)
    identity.issue(pki, name, days=days)


def guard(pki, name):
    return MutualTls(name, authority=pki / "ca.pem", certificate=pki / f"{name}.pem", key=pki / f"{name}.key")


def node(name, where, pki, tmp_path):
    limits = Limits(first_retry=0.02, last_retry=0.3, heartbeat=0.5, linger=0.5)
    journal = tmp_path / f"{name}.journal"
    return Node(name, peers=where, listen=where[name], guard=guard(pki, name), limits=limits, journal=journal)


def told(one, word):
    reasons = [why for of in one._connections._troubles.values() for (_, why) in of]
    return [why for why in reasons if word in why]


def test_a_certificate_that_expires_ends_its_links_and_a_new_one_brings_them_back(pki, tmp_path):
    renew(pki, "b", 4 * SECOND)

    async def scenario():
        where = addresses("a", "b")
        a, b = node("a", where, pki, tmp_path), node("b", where, pki, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await b.multicast(["a"], b"before")
        assert await take(a, 1) == ["b:1"]
        await until(lambda: not a._connections.calling and not a._connections.called)
        await until(lambda: told(a, "its certificate has expired"))
        await b.multicast(["a"], b"meanwhile")
        await until(lambda: told(a, "CERTIFICATE_VERIFY_FAILED: certificate has expired"))
        assert a.delivered == 1
        renew(pki, "b", 1)
        b.reload_certificates()
        assert await take(a, 1) == ["b:2"]
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_files_that_cannot_be_used_change_nothing(pki, tmp_path):
    ours = guard(pki, "a")
    before = ours.tls(server=True)
    identity.issue(pki, "c")
    for kind in ("pem", "key"):
        (pki / f"a.{kind}").write_bytes((pki / f"c.{kind}").read_bytes())
    with pytest.raises(IdentityError, match="is the certificate of 'c', and this node is 'a'"):
        ours.reload()
    (pki / "a.pem").write_text("nothing")
    with pytest.raises(IdentityError, match="are not a certificate and its key"):
        ours.reload()
    assert ours.tls(server=True) is before


def test_a_node_without_certificates_says_so():
    with pytest.raises(LocalProtocolError, match="'a' has no certificates"):
        Node("a", peers={}, guard=Plaintext()).reload_certificates()


def test_a_signal_makes_the_command_read_them_again(pki, tmp_path):
    import subprocess
    import sys

    (tmp_path / "a.toml").write_text(
        'name = "a"\nlisten = "127.0.0.1:0"\n[security]\nauthority = "pki/ca.pem"\n'
        'certificate = "pki/a.pem"\nprivate_key = "pki/a.key"\n'
    )
    command = [sys.executable, "-m", "happened", "node", "--config", str(tmp_path / "a.toml"), "--stay"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as running:

        def line_with(word):
            return next(line for line in running.stderr if word in line)

        try:
            running.stdin.write('{"show": "members"}\n')
            running.stdin.flush()
            assert running.stdout.readline()  # it obeys, so that its signals are set up
            os.kill(running.pid, signal.SIGHUP)
            line_with("certificates were read again")
            (pki / "a.pem").write_text("nothing")
            os.kill(running.pid, signal.SIGHUP)
            assert "are not a certificate and its key" in line_with("certificates stay as they are")
            running.terminate()
            assert running.wait(30) == 0
        finally:
            running.kill()
