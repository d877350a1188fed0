"""Runs: their records, states, limits and counters, and the leader that ends them."""

from crawlproj.model.run import RunState
from crawlproj.runs.counters import RunCounters
from crawlproj.runs.leader import Leader
from crawlproj.runs.record import Limits, Run, RunMap
from crawlproj.runs.status import status_of

__all__ = ["Leader", "Limits", "Run", "RunCounters", "RunMap", "RunState", "status_of"]
