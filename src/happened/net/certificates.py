"""Makes X.509 certificates: an authority of one's own, and a certificate for each process.

This is the only module that needs `cryptography`; `identity` writes the results to files and says what they
prove. Keys are on the curve P-256, because every TLS library takes them.
"""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from .errors import IdentityError
from .handshake import URI_SCHEME

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise IdentityError("making certificates needs cryptography: pip install 'happened[net]'") from None

CLOCK_SKEW = timedelta(hours=1)
"""A certificate is valid this long before it was made, for peers whose clocks are behind."""
MAX_COMMON_NAME = 64  # of X.520; the common name is for people, the URI for machines


def authority(name: str, days: int) -> tuple[bytes, bytes]:
    """A self-signed certificate that may sign others but no further authority, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(name)
    builder = _builder(subject, subject, key, key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _pem(builder.sign(key, hashes.SHA256())), _pem_key(key)


def issue(name: str, days: int, authority_certificate: bytes, authority_key: bytes) -> tuple[bytes, bytes]:
    """A certificate for the process `name`, to call and to be called, and its key, as PEM."""
    try:
        issuer = x509.load_pem_x509_certificate(authority_certificate)
        signing_key = serialization.load_pem_private_key(authority_key, password=None)
    except (ValueError, TypeError) as error:
        raise IdentityError(f"the authority's files are damaged: {error}") from None
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise IdentityError("the authority's key is not one that `happened ca init` made")
    if signing_key.public_key() != issuer.public_key():
        raise IdentityError("the authority's key is not the one its certificate was made with")
    key = ec.generate_private_key(ec.SECP256R1())
    if datetime.now(UTC) + timedelta(days=days) > issuer.not_valid_after_utc:
        raise IdentityError(f"the authority itself ends on {issuer.not_valid_after_utc:%Y-%m-%d}: fewer days")
    builder = _builder(_common_name(name), issuer.subject, key, signing_key, days)
    uri = x509.UniformResourceIdentifier(URI_SCHEME + quote(name, safe=""))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(purposes, critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
    return _pem(builder.sign(signing_key, hashes.SHA256())), _pem_key(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:MAX_COMMON_NAME])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
