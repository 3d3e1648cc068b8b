# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for a companion: it answers at a path as Ollama or a speech service does, really holds memory and a port, and does nothing else."""

from __future__ import annotations

import argparse
import http.server
import signal

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--hold-mib", type=int, default=0)
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM, as a program that hangs does")
    options = parser.parse_args()
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Written to, so that it is there and not only promised.
    held = bytearray(b"x") * (options.hold_mib * MIB)

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == options.path
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(b'{"stand_in": true, "held": %d}\n' % len(held))

    with http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Answer) as server:
        print("answers", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
