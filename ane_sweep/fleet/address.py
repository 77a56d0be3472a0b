"""Addresses of a fleet's scheduler. They use TLS, on loopback too: any program that reaches a scheduler without it can run code there."""

import ipaddress
from urllib.parse import urlsplit

from ane_sweep.errors import ConfigError
from ane_sweep.outward import mask_credentials

PORT = 8786
_FORM = f"the form is tls://HOST:{PORT}, for a fleet on this machine alone tls://127.0.0.1:{PORT}"


def checked(text: str) -> str:
    """Return the address in Dask's form. Raises ConfigError unless it is tls://HOST:PORT."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if mask_credentials(text) != text or "@" in text:
        raise ConfigError(f"{mask_credentials(text)}: an address of a fleet holds no user and no password; {_FORM}")
    if parts.scheme == "tcp" and parts.netloc:
        raise ConfigError(
            f"{text}: without TLS, whoever reaches that port could run code here; the same address as tls://{parts.netloc} "
            "(on loopback its certificates are made automatically, elsewhere `ane-sweep fleet init` makes them)"
        )
    if not host or port is None or parts.scheme != "tls" or parts.path or parts.query:
        raise ConfigError(f"{text}: not the address of a scheduler; {_FORM}")
    return text


def host_and_port(checked_address: str) -> tuple[str, int]:
    parts = urlsplit(checked_address)
    assert parts.hostname and parts.port is not None
    return parts.hostname, parts.port


def is_loopback(checked_address: str) -> bool:
    """Return True if only this machine can reach the address."""
    return is_loopback_host(host_and_port(checked_address)[0])


def is_loopback_host(host: str) -> bool:
    """Return True if a host's name or IP address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
