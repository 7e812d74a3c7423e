"""Makes X.509 certificates, an authority of one's own and one for each process, and checks which process a
certificate names.

This and signatures.py are the only modules that need `cryptography`; `identity` writes the results to
files. Keys are on the curve P-256, because every TLS library takes them.
"""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from .errors import IdentityError
from .handshake import URI_SCHEME, HandshakeError, certified_name

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise IdentityError("making certificates needs cryptography: pip install 'happened[net]'") from None

CLOCK_SKEW = timedelta(hours=1)
"""A certificate is valid from this long before it is made, for peers whose clocks are behind."""
MAX_COMMON_NAME = 64  # of X.520; the common name is for people, the URI for machines


def authority(name: str, days: int) -> tuple[bytes, bytes]:
    """A self-signed certificate that may sign others but no further authority, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _certificate(name, key.public_key(), days, key), _pem_key(key)


def issue(name: str, days: float, *authority: bytes) -> tuple[bytes, bytes]:
    """A certificate for the process `name`, valid for calling and for being called, and its key, as PEM.
    `authority` is the authority's certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return certify(name, key.public_key(), days, *authority), _pem_key(key)


def renew(name: str, days: float, certificates: bytes, authority: tuple[bytes, bytes]) -> bytes:
    """New certificates for the keys of these, which must be of the process `name`: signatures made with a key
    stay valid."""
    issuers = read(authority[0])
    keys = [key_of(each, name, issuers) for each in read(certificates)]
    return b"".join(certify(name, key, days, *authority) for key in keys)


def certify(name: str, key: ec.EllipticCurvePublicKey, days: float, *authority: bytes) -> bytes:
    """A certificate of the process `name` for a key, as PEM."""
    try:
        issuer = x509.load_pem_x509_certificate(authority[0])
        signing_key = serialization.load_pem_private_key(authority[1], password=None)
    except (ValueError, TypeError) as error:
        raise IdentityError(f"the authority's files are damaged: {error}") from None
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise IdentityError("the authority's key is not one that `happened node keys authority` made")
    if signing_key.public_key() != issuer.public_key():
        raise IdentityError("the authority's key is not the one its certificate was made with")
    if datetime.now(UTC) + timedelta(days=days) > issuer.not_valid_after_utc:
        raise IdentityError(f"the authority itself ends on {issuer.not_valid_after_utc:%Y-%m-%d}: fewer days")
    return _certificate(name, key, days, signing_key, issuer)


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    days: float,
    signing_key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None = None,
) -> bytes:
    """A certificate of a process, as PEM; without an `issuer`, a certificate of an authority."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:MAX_COMMON_NAME])])
    signs, now = issuer is None, datetime.now(UTC)
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
    usage |= {"digital_signature": not signs, "key_cert_sign": signs, "crl_sign": signs}
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), False),
        (x509.BasicConstraints(ca=signs, path_length=0 if signs else None), True),
        (x509.KeyUsage(**usage), True),
    ]
    if not signs:
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        uri = x509.UniformResourceIdentifier(URI_SCHEME + quote(name, safe=""))
        extensions += [(x509.ExtendedKeyUsage(purposes), False), (x509.SubjectAlternativeName([uri]), False)]
    builder = x509.CertificateBuilder(
        issuer_name=subject if issuer is None else issuer.subject,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=now + timedelta(days=days),
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read(pem: bytes) -> list[x509.Certificate]:
    """The certificates of a file; IdentityError if there are none."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise IdentityError(f"holds no certificate: {error}") from None


def key_of(
    certificate: x509.Certificate, name: str, authorities: list[x509.Certificate]
) -> ec.EllipticCurvePublicKey:
    """The key that a certificate proves to be that of the process `name`, whether or not it is valid now;
    IdentityError if the certificate does not prove that."""
    if not any(_has_issued(authority, certificate) for authority in authorities):
        raise IdentityError("was not issued by the authority of this system")
    try:
        found = certified_name({"subjectAltName": _names_in(certificate)})
    except HandshakeError as error:
        raise IdentityError(str(error)) from None
    if found != name:
        raise IdentityError(f"is the certificate of {found!r}, not of {name!r}")
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("is of no key on the curve P-256, as `happened node keys issue` makes them")
    return key


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether a certificate that may sign others, and is valid now, has signed this one."""
    try:
        certificate.verify_directly_issued_by(authority)
        may = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return may and authority.not_valid_before_utc <= datetime.now(UTC) < authority.not_valid_after_utc


def _names_in(certificate: x509.Certificate) -> list[tuple[str, str]]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return [("URI", uri) for uri in uris] + [("DNS", dns) for dns in names.get_values_for_type(x509.DNSName)]


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
