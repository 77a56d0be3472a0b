"""An address of the fleet: this machine, or TLS. Anything else would let whoever reaches the port run code."""

import ipaddress
from urllib.parse import urlsplit

from ane_sweep.errors import ConfigError
from ane_sweep.outward import credentials

PORT = 8786
_FORM = f"the form is tls://HOST:{PORT}, or tcp://127.0.0.1:{PORT} for a fleet on this machine alone"


def checked(text: str) -> str:
    """The address as Dask takes it. Raises ConfigError for one that is neither loopback nor TLS."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if credentials(text) != text or "@" in text:
        raise ConfigError(f"{credentials(text)}: an address of a fleet holds no user and no password; {_FORM}")
    if host is None or port is None or parts.scheme not in ("tls", "tcp") or parts.path or parts.query:
        raise ConfigError(f"{text}: no address of a scheduler; {_FORM}")
    if parts.scheme == "tcp" and not loopback(host):
        raise ConfigError(
            f"{text}: neither loopback nor TLS, so whoever reaches that port could run code here; "
            f"tls://{parts.netloc} with the certificates of `ane-sweep fleet init`"
        )
    return text


def is_tls(address: str) -> bool:
    return address.startswith("tls://")


def loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
