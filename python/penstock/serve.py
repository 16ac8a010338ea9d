# SPDX-License-Identifier: Apache-2.0
"""`penstock serve`: the playground on this machine alone, with the full engine behind it.

It listens on the loopback. Every address begins with a token that only who has started it knows, and a
request must name this host, lest another page asks through a name of its own. Scenarios are simulated
with what is shipped: they can read no other file, and none is written.
"""

import argparse
import hmac
import json
import pathlib
import re
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict

from . import _core, errors
from .commands import program
from .results import Result

#: in a build, and where something is installed
_PAGES = tuple(pathlib.Path(program()).parents[1] / folder / "playground/index.html" for folder in ("", "share/penstock"))
_MOST_BYTES = 1 << 20
_ENGINES = ("auto", "exact", "fluid", "simgrid")
_IN_CSP, _HEAD = "connect-src data:", '<meta charset="utf-8">'


def page() -> str:
    """The playground, allowed to ask who has served it."""
    found = next((path for path in _PAGES if path.exists()), None)
    if found is None:
        raise SystemExit(f"penstock serve: the page is not there: it is neither {' nor '.join(map(str, _PAGES))}\n"
                         "In the sources, `ninja -C build playground/index.html` makes it, with Debian's emscripten; a package or a "
                         "wheel that was made where that is installed has it.")
    return found.read_text(encoding="utf-8").replace(_IN_CSP, f"{_IN_CSP} 'self'", 1).replace(
        _HEAD, f'{_HEAD}\n<meta name="penstock-engine" content="simulate">', 1)


def answer(asked: Dict[str, Any]) -> Dict[str, Any]:
    """What the page shows: the result, or what is wrong."""
    engine = asked.get("engine", "auto")
    if engine not in _ENGINES or not isinstance(asked.get("scenario"), str):
        return {"problems": [{"rendered": f"needs a scenario's text and an engine of {', '.join(_ENGINES)}"}]}
    try:
        scenario = _core.ReadScenario.of_text_alone(asked["scenario"], "scenario")
        return {"result": Result(scenario.simulate([], engine)).to_dict()}
    except errors.InputError as error:
        return {"problems": [{"rendered": d.rendered} for d in error.diagnostics]}
    except errors.PenstockError as error:
        return {"problems": [{"rendered": str(error)}]}


def _json_in(body: bytes) -> Any:
    """Throws ValueError, or RecursionError where it is nested too deep."""
    asked = json.loads(body.decode())
    json.dumps(asked, ensure_ascii=False).encode()  # an escaped half of a character is none
    return asked


class _Handler(BaseHTTPRequestHandler):
    server: "Server"
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:  # noqa: N802 - as the library calls it
        if self._refused(""):
            return
        self._send(200, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:  # noqa: N802
        if self._refused("simulate"):
            return
        sizes = self.headers.get_all("Content-Length", [])
        if len(sizes) != 1 or not re.fullmatch("[0-9]+", sizes[0]):
            return self._send(400, "text/plain", b"needs one Content-Length, a number of bytes\n")
        if len(sizes[0].lstrip("0")) > len(str(_MOST_BYTES)) or int(sizes[0]) > _MOST_BYTES:
            return self._send(413, "text/plain", b"too large\n")
        body = self.rfile.read(int(sizes[0]))
        if len(body) < int(sizes[0]):
            return self._send(400, "text/plain", b"ends before its Content-Length\n")
        try:
            asked = _json_in(body)
        except (ValueError, RecursionError):
            return self._send(400, "text/plain", b"is no JSON of a few levels in UTF-8\n")
        said = answer(asked if isinstance(asked, dict) else {})
        self._send(200, "application/json", json.dumps(said).encode())

    def _refused(self, path: str) -> bool:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self._send(403, "text/plain", b"this host has another name\n")
        elif not hmac.compare_digest(self.path.encode(), f"/{self.server.token}/{path}".encode()):
            self._send(404, "text/plain", b"there is nothing here\n")
        else:
            return False
        return True

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close"),
                            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
                            ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass  # the token would stand in it


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int):
        self.page = page().encode()
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who went away before the answer, or never asked, is no error of ours."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"


def main() -> None:
    options = argparse.ArgumentParser(prog="penstock serve")
    options.add_argument("--port", type=int, default=0)
    try:
        server = Server(options.parse_args().port)
    except (OSError, OverflowError) as error:
        sys.exit(f"penstock serve: {error}")
    try:
        print(server.url(), flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
