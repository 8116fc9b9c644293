# SPDX-License-Identifier: Apache-2.0
"""A webhook that prints the alerts it gets. docs/reference/webhooks.md shows how to check their signatures."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(f"alert: {event['subject']} was not received in time, {event['data']['lagMs']} ms late", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format, *args):
        """The alerts are log enough."""


HTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9999), Hook).serve_forever()
