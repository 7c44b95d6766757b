"""One at a time: autograd has a thread per device, and all of them show their operations to the same followers."""

from __future__ import annotations

import threading

LOCK = threading.RLock()
"""Held while followers look at an operation, and while a twin is made or dies; never around an operation of the run.

It can be taken again by the thread that has it: a tensor may die, and its twin with it, wherever Python cleans up.
"""
