# SPDX-License-Identifier: Apache-2.0
"""Modules that are imported when something of them is first used, so that --help needs none."""
import importlib


class Later:
    """The module `name`, imported at its first use."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, member):
        return getattr(importlib.import_module(self._name), member)
