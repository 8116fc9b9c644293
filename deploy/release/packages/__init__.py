# SPDX-License-Identifier: Apache-2.0

import os
import sysconfig

from . import broker


class Broker(broker.Broker):
    """The fixture, with the program of this package."""

    def __init__(self, config):
        super().__init__(config, os.path.join(sysconfig.get_path("scripts"), "overdue"))
