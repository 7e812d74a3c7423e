"""Signatures by certificates: which count, which are looked for again, and what is said of the others."""

import builtins
import importlib
import shutil
import sys

import pytest

from happened.core.errors import RemoteProtocolError
from happened.net import Signatures, identity
from happened.net.errors import IdentityError

SECOND = 1 / 86_400  # of a day
PARTS = ("message", "b", b"payload")


@pytest.fixture(scope="module")
def pkis(tmp_path_factory):
    """Two authorities, each with certificates of a, b and c."""
    folders = [tmp_path_factory.mktemp(name) for name in ("ours", "theirs")]
    for folder in folders:
        identity.make_authority(folder)
        for name in "abc":
            identity.issue(folder, name)
    return folders


@pytest.fixture
def pki(pkis, tmp_path):
    return shutil.copytree(pkis[0], tmp_path / "pki")


def of(name, pki, **other):
    files = {"key": pki / f"{name}.key", "members": pki, "authority": pki / "ca.pem"} | other
    return Signatures(name, **files)


def issue(pki, name, days):
    for kind in ("pem", "key"):
        (pki / f"{name}.{kind}").unlink(missing_ok=True)
    identity.issue(pki, name, days=days)


def test_a_signature_belongs_to_its_process_and_to_all_that_was_signed(pki):
    a, b = of("a", pki), of("b", pki)
    signature = b.sign(*PARTS)
    assert len(signature) == 64 and signature != b.sign(*PARTS)
    a.check("b", signature, *PARTS)
    a.check("a", a.sign(*PARTS), *PARTS)
    wrong = [
        ("c", signature, PARTS),
        ("b", signature, PARTS[:-1]),
        ("b", signature, ("message", b"bpayload")),
        ("b", signature, ("messageb", b"", b"payload")),
        ("b", signature[:-1], PARTS),
        ("b", b"", PARTS),
        ("b", bytes(64), PARTS),
        ("b", b"\xff" * 64, PARTS),
        ("b", signature[:-1] + bytes((signature[-1] ^ 1,)), PARTS),
    ]
    for name, signed, parts in wrong:
        with pytest.raises(
            RemoteProtocolError, match=f"what '{name}' is said to have sent was altered on its way"
        ):
            a.check(name, signed, *parts)


def test_a_certificate_that_comes_late_is_found(pki):
    a, signature = of("a", pki), of("b", pki).sign(*PARTS)
    late = (pki / "b.pem").rename(pki / "elsewhere")
    for _ in range(2):
        with pytest.raises(
            RemoteProtocolError, match=r"cannot be checked: .*b\.pem: cannot be read.*Put its"
        ):
            a.check("b", signature, *PARTS)
    late.rename(pki / "b.pem")
    a.check("b", signature, *PARTS)


def test_a_certificate_of_another_authority_or_of_another_process_proves_nothing(pkis, pki):
    foreign = of("b", pkis[1])
    for file, why in (
        (pkis[1] / "b.pem", "was not issued by the authority of this system"),
        (pki / "c.pem", "is the certificate of 'c', not of 'b'"),
        (pki / "ca.pem", "names nobody, not one process"),
        (pki / "b.key", "holds no certificate"),
    ):
        a = of("a", pki)
        data = file.read_bytes()
        (pki / "b.pem").write_bytes(data)
        with pytest.raises(RemoteProtocolError, match=why):
            a.check("b", foreign.sign(*PARTS), *PARTS)


def test_what_an_intermediate_or_any_member_has_issued_proves_nothing(pki, tmp_path):
    """c makes itself an authority: its certificate may not sign others."""
    evil = tmp_path / "evil"
    evil.mkdir()
    shutil.copy(pki / "c.pem", evil / "ca.pem")
    shutil.copy(pki / "c.key", evil / "ca.key")
    (evil / "ca.key").chmod(0o600)
    identity.issue(evil, "b", days=1)
    a = of("a", pki)
    (pki / "b.pem").write_bytes((evil / "b.pem").read_bytes())
    with pytest.raises(RemoteProtocolError, match="was not issued by the authority"):
        a.check("b", bytes(64), *PARTS)
    with pytest.raises(IdentityError, match="was not issued by the authority"):
        of("b", evil)  # with c as the authority


def test_an_expired_certificate_proves_nothing_until_it_is_renewed_for_the_same_key(pki):
    b = of("b", pki)
    signature = b.sign(*PARTS)
    identity.renew(pki, "b", days=-1 / 48)  # half an hour ago
    a = of("a", pki)
    with pytest.raises(
        RemoteProtocolError, match=r"valid from .* to .* UTC: `happened node keys renew` makes a new one"
    ):
        a.check("b", signature, *PARTS)
    with pytest.raises(IdentityError, match="has no valid certificate of the key"):
        b.reload()
    identity.renew(pki, "b")
    a.check("b", signature, *PARTS)
    b.reload()


def test_it_expires_while_it_is_known(pki, monkeypatch):
    signature = of("b", pki).sign(*PARTS)
    identity.renew(pki, "b", days=1)
    a = of("a", pki)
    a.check("b", signature, *PARTS)
    now = sys.modules["time"].time()
    monkeypatch.setattr("happened.net.signatures.time.time", lambda: now + 2 * 86_400)
    with pytest.raises(RemoteProtocolError, match="is signed with a certificate that is valid from"):
        a.check("b", signature, *PARTS)


def test_a_new_key_beside_the_old_one_and_both_are_taken(pki):
    a, old = of("a", pki), of("b", pki)
    before, first = (pki / "b.pem").read_bytes(), old.sign(*PARTS)
    a.check("b", first, *PARTS)
    issue(pki, "b", 1)
    new = of("b", pki)
    second = new.sign(*PARTS)
    with pytest.raises(RemoteProtocolError, match="was altered on its way, or signed with a key that no"):
        of("c", pki).check("b", first, *PARTS)
    with (pki / "b.pem").open("ab") as file:
        file.write(before)
    for each in (first, second):
        a.check("b", each, *PARTS)
        of("c", pki).check("b", each, *PARTS)


def test_files_that_do_not_belong_together_are_refused_before_anything_is_signed(pkis, pki, tmp_path):
    (tmp_path / "private.pem").write_bytes((pki / "a.pem").read_bytes())
    (tmp_path / "private.pem").chmod(0o600)
    cases = [
        ({"key": pki / "c.key"}, "has no valid certificate of the key"),
        ({"key": tmp_path / "none"}, "none: cannot be read"),
        ({"authority": pkis[1] / "ca.pem"}, "was not issued by the authority"),
        ({"authority": tmp_path / "none"}, "none: cannot be read"),
        ({"authority": pki / "a.key"}, "holds no certificate"),
        ({"members": tmp_path / "nowhere"}, "a.pem: cannot be read"),
        ({"key": tmp_path / "private.pem"}, "is no key that could be used"),
    ]
    for other, why in cases:
        with pytest.raises(IdentityError, match=why):
            of("a", pki, **other)
    (pki / "a.key").chmod(0o604)
    with pytest.raises(IdentityError, match="is open to everyone"):
        of("a", pki)


def test_a_failed_reload_changes_nothing(pki):
    a, b = of("a", pki), of("b", pki)
    (pki / "a.pem").write_text("nothing")
    with pytest.raises(IdentityError):
        a.reload()
    a.check("b", b.sign(*PARTS), *PARTS)
    a.sign(*PARTS)


def test_a_renewal_certifies_nothing_that_the_authority_did_not(pkis, pki):
    (pki / "b.pem").write_bytes((pkis[1] / "b.pem").read_bytes())
    with pytest.raises(IdentityError, match=r"b\.pem: cannot be renewed: was not issued by the authority"):
        identity.renew(pki, "b")
    (pki / "b.pem").write_bytes((pki / "c.pem").read_bytes())
    with pytest.raises(IdentityError, match="is the certificate of 'c'"):
        identity.renew(pki, "b")


def test_without_cryptography_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *more):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "happened.net.signatures")
    with pytest.raises(IdentityError, match=r"signatures need cryptography: pip install 'happened\[net\]'"):
        importlib.import_module("happened.net.signatures")
