"""The certificates of a fleet: its own authority, and one certificate that scheduler, workers and sweeps show each
other.

A holder of these files may run code on every machine of the fleet, so only their owner can read them.
"""

import datetime
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address
from ane_sweep.folders import data_folder, user_path

VARIABLE = "ANE_SWEEP_FLEET"
AUTHORITY, CERTIFICATE, KEY = "ca.pem", "fleet.pem", "fleet.key"
FILES = (AUTHORITY, CERTIFICATE, KEY)
YEARS = 5
_ISSUER = "ane-sweep fleet authority"
_BEFORE = datetime.timedelta(days=2)  # a clock that is behind takes them all the same


def folder(asked: str | None) -> Path:
    """Return the folder of certificates: the given one, else $ANE_SWEEP_FLEET, else the user's default."""
    named = asked or os.environ.get(VARIABLE)
    return user_path(named).absolute() if named else own_folder()


def own_folder() -> Path:
    """Return the user's default folder of certificates, which every sweep and worker of the user finds."""
    return data_folder() / "fleet"


def ensure(place: Path, at: str) -> None:
    """Make this user's own certificates if a fleet on loopback lacks them. Raises ConfigError if another folder lacks
    them.

    Several processes may call this at once: the folder appears complete, by a rename, and later processes use it.
    """
    if address.is_loopback(at) and place == own_folder() and missing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fleet-", dir=place.parent) as aside:  # 0700
            made = Path(aside) / place.name
            make(made)
            with suppress(OSError):  # there already
                os.rename(made, place)
    if problem := missing(place):
        raise ConfigError(problem)


def missing(place: Path) -> str | None:
    """Return a sentence about the files that a folder of certificates lacks, with the next step; None if it is complete."""
    if lacking := [name for name in FILES if not (place / name).is_file()]:
        return (
            f"no certificates of a fleet in {place} ({', '.join(lacking)}): `ane-sweep fleet init` makes them once, and every "
            f"machine gets a copy of that folder; another place is --certificates, executor.certificates= or {VARIABLE}"
        )
    return None


def make(place: Path) -> list[Path]:
    """Write new certificates, 0600 in a folder of 0700. Raises ConfigError if some are there already."""
    if there := [name for name in FILES if (place / name).exists()]:
        raise ConfigError(
            f"{place} holds {', '.join(there)} already, and machines may trust them: they are left as they are; "
            "`ane-sweep fleet init FOLDER` makes others elsewhere"
        )
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError("fleet init needs cryptography: pip install 'ane-sweep[fleet]'") from None
    now = datetime.datetime.now(datetime.UTC)
    # The authority's own key is not kept, so that no further certificate can be made that these machines trust.
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def certify(subject: str, public: ec.EllipticCurvePublicKey, authority: bool) -> bytes:
        builder = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named(_ISSUER)).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - _BEFORE)
        builder = builder.not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        basic = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        builder = builder.add_extension(basic, critical=True).add_extension(signer, critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        use = x509.KeyUsage(not authority, False, False, False, False, authority, authority, False, False)
        signed = builder.add_extension(use, critical=True).sign(authority_key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    made = {
        AUTHORITY: certify(_ISSUER, authority_key.public_key(), True),
        CERTIFICATE: certify("ane-sweep fleet", key.public_key(), False),
        KEY: key.private_bytes(*form),
    }
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in made.items():
        descriptor = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return [place / name for name in made]
