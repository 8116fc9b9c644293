# SPDX-License-Identifier: Apache-2.0
"""Sends an order over REST. It needs no SDK."""

import json
import sys
import urllib.request

request = urllib.request.Request(
    sys.argv[1] + "/rest-orders/messages",
    data=b"one tea",
    headers={
        "BrokerProperties": json.dumps({"MessageId": "order-2", "TimeToLive": 3600}),
        "overdue-within": '"2s"',  # a custom property: a string in quotation marks
    },
)
with urllib.request.urlopen(request, timeout=30) as answer:
    print("order-2:", answer.status)
