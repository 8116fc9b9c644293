# SPDX-License-Identifier: Apache-2.0
"""Scenarios with the Python SDK. Arguments: the names of those to run; none means all."""

import sys

import endpoints  # noqa: F401  the imports add the scenarios
import faults  # noqa: F401
import locks  # noqa: F401
import messages  # noqa: F401
import schedule  # noqa: F401
import sessions  # noqa: F401
import settle  # noqa: F401
import topics  # noqa: F401
from harness import run

run(sys.argv[1:])
