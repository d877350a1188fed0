"""Runs: their records, states and limits, their figures, and the leader who decides that one is over."""

from crawlproj.runs.figures import Figures
from crawlproj.runs.leader import Leader
from crawlproj.runs.record import Limits, Run, RunMap, RunState
from crawlproj.runs.status import status_of

__all__ = ["Figures", "Leader", "Limits", "Run", "RunMap", "RunState", "status_of"]
