"""SFTP for fsspec that connects only to hosts in ~/.ssh/known_hosts and has time limits."""

from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

CONNECT_S, ANSWER_S, ALIVE_S = 15, 60, 15


class Sftp(SFTPFileSystem):
    """An SFTP file system with checks and time limits.

    fsspec's own accepts any key that a host shows (paramiko's AutoAddPolicy), and waits without limit on a cut line.
    """

    cachable = False

    @classmethod
    def parse_url(cls, url: str) -> dict[str, Any]:
        """Return the arguments of a connection that a URL holds."""
        arguments: dict[str, Any] = cls._get_kwargs_from_urls(url)
        return arguments

    def _connect(self) -> None:
        self.client = paramiko.SSHClient()
        self.client.load_system_host_keys()
        self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self.client.connect(self.host, **{"timeout": CONNECT_S, **self.ssh_kwargs})
        self.ftp = self.client.open_sftp()
        if (channel := self.ftp.get_channel()) is not None:
            channel.settimeout(ANSWER_S)
            channel.get_transport().set_keepalive(ALIVE_S)

    def put_file(self, lpath: str, rpath: str, callback: Any = None, **_: Any) -> None:
        self.ftp.put(lpath, rpath, callback and (lambda done, _: callback.absolute_update(done)))

    def get_file(self, rpath: str, lpath: str, callback: Any = None, **_: Any) -> None:
        self.ftp.get(rpath, lpath, callback and (lambda done, _: callback.absolute_update(done)))
