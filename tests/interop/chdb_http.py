#!/usr/bin/env python3
"""ClickHouse's engine of today (chdb-core) behind as much of its HTTP interface as the store uses.

Debian has the server of 2018 only. The engine of today runs in this process, so that every statement
of the store is carried out by it, too: chdb_http.py PORT FOLDER
"""

import http.server
import os
import sys
import tempfile
import threading
import urllib.parse

from chdb import session


def main():
    port, folder = int(sys.argv[1]), sys.argv[2]
    # A folder with a config.xml of its own would be loaded.
    engine = session.Session(os.path.join(folder, "engine"))
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            url = urllib.parse.urlsplit(self.path)
            given = dict(urllib.parse.parse_qsl(url.query))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            rows = None
            if self.headers.get("Content-Type", "").startswith("multipart/form-data"):
                boundary = self.headers["Content-Type"].split("boundary=")[1].encode()
                # One part: after its head, before the last boundary.
                rows = body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--" + boundary, 1)[0]
                statement = given["query"]
            else:
                statement = body.decode()
            try:
                with lock:
                    answer = self.carry_out(statement, given, rows)
                self.reply(200, answer)
            except Exception as error:  # noqa: BLE001 - whatever the engine says goes to who asked
                self.reply(500, str(error).encode())

        def carry_out(self, statement, given, rows):
            form = "JSONCompact" if given.get("default_format") == "JSONCompact" else "Null"
            if statement.rstrip().endswith("FORMAT RowBinary"):
                form, statement = "RowBinary", statement.rstrip()[: -len("FORMAT RowBinary")]
            if given.get("default_format") == "JSONCompact":
                # The engine here has one user, who may all: only a SELECT is passed on.
                if not statement.lstrip().upper().startswith("SELECT") or "SETTINGS" in statement:
                    raise ValueError("Code: 164. Cannot execute query in readonly mode")
                engine.query(f"USE {given['database']}", "Null")
            if rows is None:
                return engine.query(statement, form).bytes()
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".bin") as file:
                file.write(rows)
                file.flush()
                table = f"file('{file.name}', RowBinary, '{given['lot_rows_structure']}')"
                engine.query(statement.replace("lot_rows", table), "Null")
            return b""

        def reply(self, status, answer):
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
