"""Certificates and keys: made, read, and refused, against the TLS of the standard library."""

import asyncio
import os
import ssl
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from happened.cli import main
from happened.net import certificates, identity
from happened.net.handshake import HandshakeError, certified_name
from happened.net.identity import IdentityError


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    identity.make_authority(folder)
    for name in ("alice", "bob", "Zoë / 7"):
        identity.issue(folder, name)
    return folder


def files(folder, name):
    return {
        "authority": folder / "ca.pem",
        "certificate": folder / f"{name}.pem",
        "key": folder / f"{name}.key",
    }


def test_a_certificate_names_its_process_and_only_it(pki):
    for name, stem in (("alice", "alice"), ("Zoë / 7", "Zo%C3%AB %2F 7")):
        assert identity.MutualTls(name, **files(pki, stem)).tls(server=True) is not None
        with pytest.raises(IdentityError, match="is the certificate of"):
            identity.MutualTls("bob", **files(pki, stem))


def test_keys_are_private_from_the_first_instant(tmp_path):
    old = os.umask(0)
    try:
        identity.make_authority(tmp_path / "new")
        identity.issue(tmp_path / "new", "dave")
        identity.make_key(tmp_path / "shared.key")
    finally:
        os.umask(old)
    for path in (tmp_path / "new" / "ca.key", tmp_path / "new" / "dave.key", tmp_path / "shared.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_key_open_to_everyone_is_refused(pki, tmp_path):
    key = tmp_path / "shared.key"
    identity.make_key(key)
    assert len(identity.read_key(key)) == 32
    key.chmod(0o644)
    with pytest.raises(IdentityError, match="open to everyone"):
        identity.read_key(key)
    exposed = tmp_path / "alice.key"
    exposed.write_bytes((pki / "alice.key").read_bytes())
    exposed.chmod(0o604)
    with pytest.raises(IdentityError, match="open to everyone"):
        identity.MutualTls("alice", **{**files(pki, "alice"), "key": exposed})


@pytest.mark.parametrize("content", [b"", b"not hex\n", b"00" * 31, b"\xff\xfe"])
def test_what_is_no_shared_key_is_said_to_be_none(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(IdentityError, match="happened node keys shared"):
        identity.SharedKey(path)


def test_nothing_is_overwritten(pki, tmp_path):
    before = {path.name: path.read_bytes() for path in pki.iterdir()}
    with pytest.raises(IdentityError, match=r"ca\.pem: exists"):
        identity.make_authority(pki)
    with pytest.raises(IdentityError, match=r"alice\.pem: exists"):
        identity.issue(pki, "alice")
    identity.make_key(tmp_path / "k")
    with pytest.raises(IdentityError, match="k: exists"):
        identity.make_key(tmp_path / "k")
    assert before == {path.name: path.read_bytes() for path in pki.iterdir()}


def test_the_authoritys_own_files_are_nobodys_name(pki):
    with pytest.raises(IdentityError, match="or of the authority's"):
        identity.issue(pki, "ca")


def test_unusable_files_are_named(pki, tmp_path):
    good = files(pki, "alice")
    with pytest.raises(IdentityError, match=r"gone\.pem: cannot be read"):
        identity.MutualTls("alice", **{**good, "certificate": tmp_path / "gone.pem"})
    with pytest.raises(IdentityError, match="are not a certificate and its key"):
        identity.MutualTls("alice", **{**good, "key": pki / "bob.key"})
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(IdentityError, match=r"junk\.pem: holds no certificate"):
        identity.MutualTls("alice", **{**good, "authority": junk})


def test_another_authoritys_certificate_is_refused_before_any_peer_does(pki, tmp_path):
    identity.make_authority(tmp_path)
    identity.issue(tmp_path, "alice")
    with pytest.raises(IdentityError, match="no peer would accept"):
        identity.MutualTls("alice", **{**files(tmp_path, "alice"), "authority": pki / "ca.pem"})


def test_an_expired_certificate_is_refused(pki, tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "CLOCK_SKEW", timedelta(days=3))
    pem, key = certificates.issue("alice", -1, (pki / "ca.pem").read_bytes(), (pki / "ca.key").read_bytes())
    (tmp_path / "alice.pem").write_bytes(pem)
    (tmp_path / "alice.key").write_bytes(key)
    (tmp_path / "alice.key").chmod(0o600)
    with pytest.raises(IdentityError, match="expired"):
        identity.MutualTls("alice", **{**files(tmp_path, "alice"), "authority": pki / "ca.pem"})


def test_a_certificate_outlives_no_authority(tmp_path):
    identity.make_authority(tmp_path, days=10)
    with pytest.raises(IdentityError, match="fewer days"):
        identity.issue(tmp_path, "alice", days=11)


def test_a_node_cannot_issue_certificates(pki, tmp_path):
    """A chain through a node's certificate must not verify: nodes are no authorities."""
    forged = tmp_path / "forged"
    forged.mkdir()
    pem, key = certificates.issue(
        "bob", 1, (pki / "alice.pem").read_bytes(), (pki / "alice.key").read_bytes()
    )
    (forged / "bob.pem").write_bytes(pem + (pki / "alice.pem").read_bytes())
    (forged / "bob.key").write_bytes(key)
    (forged / "bob.key").chmod(0o600)
    with pytest.raises(IdentityError, match="no peer would accept"):
        identity.MutualTls("bob", **{**files(forged, "bob"), "authority": pki / "ca.pem"})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([("URI", "happened:alice")], "alice", id="ours"),
        pytest.param(
            [("URI", "happened:a%2Fb"), ("DNS", "x.example")], "a/b", id="ours goes before a host name"
        ),
        pytest.param([("DNS", "alice")], "alice", id="one host name"),
        pytest.param([("DNS", "alice"), ("DNS", "bob")], None, id="two host names"),
        pytest.param([("URI", "happened:alice"), ("URI", "happened:bob")], None, id="two of ours"),
        pytest.param([("DNS", "*.example")], None, id="a wildcard"),
        pytest.param([("URI", "spiffe://x/alice")], None, id="another scheme"),
        pytest.param([], None, id="nobody"),
    ],
)
def test_a_certificate_speaks_for_one_process(names, expected):
    certificate = {"subject": ((("commonName", "mallory"),),), "subjectAltName": tuple(names)}
    if expected is None:
        with pytest.raises(HandshakeError, match="not one process"):
            certified_name(certificate)
    else:
        assert certified_name(certificate) == expected


def test_two_nodes_meet_over_real_tls_and_older_versions_are_refused(pki):
    alice = identity.MutualTls("alice", **files(pki, "alice"))
    bob = identity.MutualTls("bob", **files(pki, "bob"))

    async def answer(reader, writer, seen):
        end = bob.handshake("bob", None, writer.get_extra_info("ssl_object"))
        while end.peer is None and (data := await reader.read(4096)):
            writer.write(end.receive(data))
        seen.append(end.peer)
        writer.close()

    async def meet():
        seen = []
        server = await asyncio.start_server(
            lambda r, w: answer(r, w, seen), "127.0.0.1", 0, ssl=bob.tls(server=True)
        )
        port = server.sockets[0].getsockname()[1]
        async with server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=alice.tls(server=False))
            end = alice.handshake("alice", "bob", writer.get_extra_info("ssl_object"))
            writer.write(end.begin())
            while end.peer is None and (data := await reader.read(4096)):
                end.receive(data)
            version = writer.get_extra_info("ssl_object").version()
            writer.close()
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname = False
            old.load_verify_locations(pki / "ca.pem")
            old.load_cert_chain(pki / "alice.pem", pki / "alice.key")
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port, ssl=old)
        return end.peer, seen, version

    assert asyncio.run(asyncio.wait_for(meet(), 60)) == ("bob", ["alice"], "TLSv1.3")


# The commands


def test_the_commands_make_what_tls_takes(tmp_path, capsys):
    pki = str(tmp_path / "pki")
    assert main(["node", "keys", "authority", "--pki", pki]) == 0
    assert main(["node", "keys", "issue", "--pki", pki, "alice", "bob"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [Path(line).name for line in printed] == ["ca.pem", "alice.pem", "alice.key", "bob.pem", "bob.key"]
    before = (tmp_path / "pki" / "bob.pem").read_bytes()
    assert main(["node", "keys", "renew", "--pki", pki, "--days", "7", "bob"]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() != before
    identity.MutualTls("bob", **files(tmp_path / "pki", "bob"))  # with the key that it has
    assert main(["node", "keys", "shared", str(tmp_path / "k")]) == 0
    identity.SharedKey(tmp_path / "k")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["node", "keys", "issue", "--pki", "{}", "alice"], "ca.key: cannot be read", id="no authority"
        ),
        pytest.param(["node", "keys", "issue", "--pki", "{}", "a\nb"], "no name of a process", id="bad name"),
        pytest.param(
            ["node", "keys", "renew", "--pki", "{}", "alice"], "ca.key: cannot be read", id="none to renew"
        ),
        pytest.param(
            ["node", "keys", "authority", "--pki", "/dev/null/x"],
            "/dev/null/x: cannot be made",
            id="no folder",
        ),
        pytest.param(["node", "keys", "shared", "{}"], "exists", id="a directory is in the way"),
        pytest.param(
            ["node", "keys", "shared", "{}/no/such/folder"], "cannot be written", id="nowhere to write"
        ),
    ],
)
def test_the_commands_say_what_is_wrong(tmp_path, capsys, arguments, message):
    assert main([argument.format(tmp_path) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_a_name_that_no_file_can_have_is_refused(pki, capsys):
    name = "é" * 60  # a process may be called so; each letter is six of a file's name
    assert main(["node", "keys", "issue", "--pki", str(pki), name]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "cannot be written: File name too long" in said


def test_without_cryptography_the_command_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from happened.net import identity; from pathlib import Path\n"
        "try: identity.make_authority(Path(sys.argv[1]))\n"
        "except identity.IdentityError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert "pip install 'happened[net]'" in done.stdout
