"""Servers on loopback that a store can be behind: S3 (moto's, with TLS of an authority of our own), SFTP (paramiko's), HTTP."""

import contextlib
import datetime
import http.server
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

PASSWORD = "correct-horse-7Qz"  # of every server here: no file of a sweep may hold it


def certificates(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """(the authority's certificate, what a server of 127.0.0.1 serves with)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def issued(name: str, key, by, signer, *extensions):
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(by)).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        return made.not_valid_after(now + datetime.timedelta(days=1)).sign(signer, hashes.SHA256())

    def named(name: str):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    ca = issued("test authority", authority, "test authority", authority, (x509.BasicConstraints(True, None), True))
    leaf = issued("127.0.0.1", server, "test authority", authority, (address, False))
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    form = (pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(server.private_bytes(*form) + leaf.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return folder / "ca.pem", context


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(s3://BUCKET/FOLDER, the environment that reaches it)."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    authority, context = certificates(folder)
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=context)
    with serving(server):
        environment = {
            "AWS_ENDPOINT_URL": f"https://127.0.0.1:{server.server_port}",
            "AWS_CA_BUNDLE": str(authority),
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield "s3://lab/ane-sweep", environment


@contextlib.contextmanager
def serving(server) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Puts(http.server.SimpleHTTPRequestHandler):
    """GET, HEAD and PUT of a folder, as nginx with dav_methods PUT."""

    def do_PUT(self) -> None:
        if not self.server.writable:
            self.send_error(405)
            return
        path, aside = Path(self.translate_path(self.path)), Path(self.directory) / os.urandom(8).hex()
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(b"".join(self._body()))
        aside.replace(path)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def log_message(self, *_) -> None: ...


@contextlib.contextmanager
def web(folder: Path, writable: bool = True) -> Iterator[str]:
    handler = type("Handler", (_Puts,), {"__init__": lambda self, *a: _Puts.__init__(self, *a, directory=str(folder))})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.writable = writable
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextlib.contextmanager
def sftp(folder: Path, home: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(sftp://USER@HOST:PORT/, the environment that reaches it): its host key is in `home`/.ssh/known_hosts."""
    import paramiko

    listener = socket.create_server(("127.0.0.1", 0))
    key, open_ones, port = paramiko.ECDSAKey.generate(), [], listener.getsockname()[1]

    class Lets(paramiko.ServerInterface):
        def check_auth_password(self, username: str, password: str) -> int:
            return paramiko.AUTH_SUCCESSFUL if password == PASSWORD else paramiko.AUTH_FAILED

        def get_allowed_auths(self, username: str) -> str:
            return "password"

        def check_channel_request(self, kind: str, chanid: int) -> int:
            return paramiko.OPEN_SUCCEEDED

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                transport = paramiko.Transport(listener.accept()[0])
                open_ones.append(transport)
                transport.add_server_key(key)
                transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _folder_server(folder))
                transport.start_server(server=Lets(), event=threading.Event())

    threading.Thread(target=accept, daemon=True).start()
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    try:
        yield f"sftp://somebody@127.0.0.1:{port}/ane-sweep", {"HOME": str(home), "FSSPEC_SFTP_PASSWORD": PASSWORD}
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for transport in open_ones:
            transport.close()


def _folder_server(folder: Path):
    import paramiko
    from paramiko import SFTPAttributes, SFTPHandle

    class Folder(paramiko.SFTPServerInterface):
        def _at(self, path: str) -> str:
            return str(folder) + self.canonicalize(path)

        def _tried(self, do, *args):
            try:
                return do(*args)
            except OSError as error:
                return paramiko.SFTPServer.convert_errno(error.errno)

        def stat(self, path):
            return self._tried(lambda: SFTPAttributes.from_stat(os.stat(self._at(path))))

        lstat = stat

        def list_folder(self, path):
            def listed():
                return [SFTPAttributes.from_stat(entry.stat(), entry.name) for entry in os.scandir(self._at(path))]

            return self._tried(listed)

        def open(self, path, flags, attr):
            def opened():
                mode = "rb" if not flags & (os.O_WRONLY | os.O_RDWR) else "wb"
                file, handle = os.fdopen(os.open(self._at(path), flags, 0o644), mode), SFTPHandle(flags)
                handle.readfile, handle.writefile, handle.filename = file, file, self._at(path)
                handle.stat = lambda: SFTPAttributes.from_stat(os.fstat(file.fileno()))
                return handle

            return self._tried(opened)

        def mkdir(self, path, attr):
            return self._tried(os.mkdir, self._at(path)) or paramiko.SFTP_OK

        def remove(self, path):
            return self._tried(os.remove, self._at(path)) or paramiko.SFTP_OK

        def rename(self, old, new):
            return self._tried(os.rename, self._at(old), self._at(new)) or paramiko.SFTP_OK

        posix_rename = rename

    return Folder
