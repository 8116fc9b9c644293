# SPDX-License-Identifier: Apache-2.0

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request


class Broker:
    """The broker at BROKER_ADDRESS, such as a container. Without that variable: a process on any free port."""

    def __init__(self, config, program="overdue"):
        self.process = None
        self.address = os.environ.get("BROKER_ADDRESS")  # host:port
        if self.address:
            self._wait(time.monotonic() + 60)
            return
        self.process = subprocess.Popen(
            [program, "broker", "--broker-listen", "127.0.0.1:0", "--broker-emulator-config", config, "--broker-auto-create=false",
             "--broker-isolate", "--broker-expiry", "eager", "--log-level", "warn", "--stop-with-stdin"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = next((line for line in self.process.stdout if line.startswith("Endpoint=sb://")), None)
        if line is None:
            raise RuntimeError("overdue broker did not start")
        self.address = line.removeprefix("Endpoint=sb://").split(";")[0]

    def _wait(self, deadline):
        while True:
            try:
                return urllib.request.urlopen(f"http://{self.address}/health", timeout=5).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def connection_string(self, name):
        """Each name, such as that of a test, is a namespace of its own with the queues of the configuration."""
        return f"Endpoint=sb://{self.address};SharedAccessKeyName={name};SharedAccessKey=any;UseDevelopmentEmulator=true"

    def control(self, name, method, path, body=None):
        """Reads or changes the state of a namespace over HTTP."""
        url = f"http://{self.address}/_overdue/{path}?namespace={urllib.parse.quote(name)}"
        request = urllib.request.Request(url, json.dumps(body).encode() if body else None, method=method)
        with urllib.request.urlopen(request) as response:
            return json.loads(response.read() or "null")

    def stop(self):
        if self.process:
            self.process.communicate()  # closes the input: the broker ends with it, also when this process is killed
