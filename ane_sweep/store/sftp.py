"""SFTP as fsspec speaks it, to hosts that ~/.ssh/known_hosts names and no other, and never waiting for ever."""

from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

CONNECT_S, ANSWER_S, ALIVE_S = 15, 60, 15


class Sftp(SFTPFileSystem):
    """fsspec's own takes whichever key a host shows (paramiko's AutoAddPolicy), and waits without limit on a cut line."""

    cachable = False

    @classmethod
    def asked(cls, url: str) -> dict[str, Any]:
        """What a URL says of a connection."""
        return cls._get_kwargs_from_urls(url)

    def _connect(self) -> None:
        self.client = paramiko.SSHClient()
        self.client.load_system_host_keys()
        self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self.client.connect(self.host, **{"timeout": CONNECT_S, **self.ssh_kwargs})
        self.ftp = self.client.open_sftp()
        if (channel := self.ftp.get_channel()) is not None:
            channel.settimeout(ANSWER_S)
            channel.get_transport().set_keepalive(ALIVE_S)
