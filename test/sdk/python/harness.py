# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios a few at a time, each with a client of its own on the queue that has its name, and
prints `ok NAME` or `FAIL NAME: why` for each."""

import concurrent.futures
import contextlib
import os
import sys
import time
import traceback

from azure.servicebus import ServiceBusClient

PATIENCE = 240  # seconds that a scenario may take
CONCURRENCY = 16

_scenarios = {}


def scenario(name):
    """Adds a scenario: a function that is given a Scene."""

    def add(function):
        _scenarios[name] = function
        return function

    return add


def required(name):
    value = os.environ.get(name)
    if not value:
        sys.exit(f"{name} is not set")
    return value


CONNECTION_STRING = required("SERVICEBUS_CONNECTION_STRING")
# The same namespace through a forwarder, whose connections a POST to CUT_URL cuts.
FORWARDED_CONNECTION_STRING = required("SERVICEBUS_FORWARDED_CONNECTION_STRING")
CUT_URL = required("SERVICEBUS_CUT_URL")
# The same over TLS, to an authority in CA_FILE.
TLS_CONNECTION_STRING = required("SERVICEBUS_TLS_CONNECTION_STRING")
# Its administration API, likewise.
ADMIN_CONNECTION_STRING = required("SERVICEBUS_ADMIN_CONNECTION_STRING")
CA_FILE = required("SERVICEBUS_CA_FILE")


class Scene:
    """What a scenario works with: a client, and the queue or topic of its name. Senders and receivers are
    closed behind it."""

    def __init__(self, name, connection_string=CONNECTION_STRING, credential=None, **options):
        self.queue = name
        if credential:
            self.client = ServiceBusClient("contoso.servicebus.windows.net", credential, retry_backoff_factor=0.1, **options)
        else:
            self.client = ServiceBusClient.from_connection_string(connection_string, retry_backoff_factor=0.1, **options)
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self.client)

    def _opened(self, handler):
        # At once, and not at the first receive: opening polls, and would use up the time to wait.
        return self._stack.enter_context(handler)

    def sender(self, queue=None):
        return self._opened(self.client.get_queue_sender(queue or self.queue))

    def receiver(self, queue=None, **options):
        return self._opened(self.client.get_queue_receiver(queue or self.queue, **options))

    def topic_sender(self, topic=None):
        return self._opened(self.client.get_topic_sender(topic or self.queue))

    def subscription(self, name, topic=None, **options):
        return self._opened(self.client.get_subscription_receiver(topic or self.queue, name, **options))

    def close(self):
        self._stack.close()


def receive(receiver, count):
    """Receives exactly count messages, in one or more calls."""
    got = []
    while len(got) < count:
        some = receiver.receive_messages(max_message_count=count - len(got), max_wait_time=60)
        if not some:
            raise AssertionError(f"received {len(got)} messages in time, want {count}")
        got += some
    return got


def receive_nothing(receiver, seconds=0.3):
    """Fails unless nothing arrives within the time."""
    got = receiver.receive_messages(max_wait_time=seconds)
    equal(bodies(got), [], "what is left")


def body(message):
    """The body as text; a data body may come in parts."""
    return b"".join(message.body).decode()


def bodies(messages):
    return [body(m) for m in messages]


def equal(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what} {got!r}, want {want!r}")


def fails_with(error, function):
    """Calls function, which has to raise that error and none of its subclasses."""
    try:
        function()
    except Exception as err:  # whatever else it is, is reported
        if type(err) is error:
            return err
        raise AssertionError(f"raised {type(err).__name__}: {err}, want {error.__name__}") from err
    raise AssertionError(f"succeeded, want {error.__name__}")


def eventually(what, condition, seconds=120):
    """Waits until condition() holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def _play(name):
    scene = Scene(name)
    try:
        _scenarios[name](scene)
    finally:
        scene.close()


def run(only):
    """Runs what was added and exits; the exit code says whether all of it passed."""
    names = [name for name in _scenarios if not only or name in only]
    passed = failed = 0
    pool = concurrent.futures.ThreadPoolExecutor(CONCURRENCY)
    # Those in a queue wait for those before them, hence one bound for all.
    end = time.monotonic() + PATIENCE * (1 + len(names) / CONCURRENCY)
    for name, result in [(name, pool.submit(_play, name)) for name in names]:
        try:
            result.result(timeout=max(0, end - time.monotonic()))
            print(f"ok {name}", flush=True)
            passed += 1
        except concurrent.futures.TimeoutError:
            print(f"FAIL {name}: not done in time", flush=True)
            failed += 1
        except BaseException as err:
            why = " | ".join(line.strip() for line in traceback.format_exception(err)[-3:])
            print(f"FAIL {name}: {why}".replace("\n", " | "), flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed", flush=True)
    os._exit(0 if failed == 0 and passed > 0 else 1)  # threads that hang must not keep it
