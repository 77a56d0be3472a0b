"""A Hugging Face hub on the loopback address: what HF_ENDPOINT points to in tests.

Serves DIR/<owner>/<name>/<file> under /<owner>/<name>/resolve/<revision>/<file> with the headers that huggingface_hub
reads (ETag, X-Repo-Commit), and the model-info call that a snapshot download begins with.
"""

import hashlib
import json
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve(root: Path, token: str | None = None, gated: Collection[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yields (endpoint URL, list that collects "METHOD path" of every request).

    token   with it, every model is given only to who brings it
    gated   repositories that are given only to who brings any
    """
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            seen.append(f"{self.command} {path}")
            if token and self.headers.get("Authorization") != f"Bearer {token}":
                return self._send(401, b"{}", {"X-Error-Code": "GatedRepo"}, body)
            if path.startswith("/api/models/"):
                repo = "/".join(path.removeprefix("/api/models/").split("/")[:2])
                files = sorted(p.name for p in (root / repo).glob("*")) if (root / repo).is_dir() else None
                if "/tree/" in path and files is not None:
                    listing = [
                        {"type": "file", "path": n, "size": (root / repo / n).stat().st_size, "oid": "0" * 40}
                        for n in files
                    ]
                    return self._send(200, json.dumps(listing).encode(), {}, body)
                if files is not None:
                    info = {
                        "id": repo,
                        "modelId": repo,
                        "sha": COMMIT,
                        "private": False,
                        "siblings": [{"rfilename": n} for n in files],
                    }
                    return self._send(200, json.dumps(info).encode(), {}, body)
            repo, _, rest = path.strip("/").partition("/resolve/")
            file = root / repo / rest.partition("/")[2]
            if not (root / repo).is_dir():
                return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
            if repo in gated and "Authorization" not in self.headers:
                return self._send(401, b"{}", {"X-Error-Code": "GatedRepo"}, body)
            if rest.partition("/")[0] not in ("main", COMMIT, "v1"):
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
            if not file.is_file():
                return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, body)
            content = file.read_bytes()
            etag = hashlib.sha256(content).hexdigest()
            return self._send(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body)

        def _send(self, code: int, content: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(code)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
