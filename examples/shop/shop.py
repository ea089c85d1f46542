"""A small service to try the gateway with: `python3 examples/shop/shop.py 9000`.

It answers each request with its method and path. A file takes two seconds. A login with the password `right` is
answered with 303 and the cookie `session`, and any other login with 401.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/files/"):
            time.sleep(2)
        self.answer(200)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        if not self.path.startswith("/login"):
            self.answer(200)
        elif form.get("password") == ["right"]:
            self.answer(303, {"Location": "/", "Set-Cookie": "session=7"})
        else:
            self.answer(401)

    def answer(self, status: int, headers: dict[str, str] | None = None) -> None:
        body = f"{self.command} {self.path}\n".encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop)
    print(f"listens on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
