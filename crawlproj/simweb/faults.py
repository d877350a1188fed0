"""How a page misbehaves, attempt by attempt; pure, so that server and referee cannot disagree."""

from __future__ import annotations

from enum import StrEnum

#: As a number of failures: fails however often it is asked.
ALWAYS = -1


class Fault(StrEnum):
    NONE = ""
    ERROR = "500"
    THROTTLE = "429"
    SLOW = "slow"  # the body dribbles, but arrives
    HANG = "hang"  # nothing is sent
    DROP = "drop"  # closed after half a header
    TRUNCATE = "truncate"  # closed before the promised length
    # Of a whole domain, see WorldSpec.throttle_all and WorldSpec.dead:
    THROTTLED = "throttled"
    DEAD = "dead"


def fault_at(fault: Fault, failures: int, attempt: int) -> Fault:
    """What happens to request number *attempt* (from 0) of a page that fails *failures* times."""
    if fault is Fault.NONE or fault is Fault.SLOW:
        return fault
    return fault if failures == ALWAYS or attempt < failures else Fault.NONE


def answers_within(fault: Fault, failures: int, attempts: int) -> bool:
    """Whether a client that tries *attempts* times gets the page at last."""
    return fault_at(fault, failures, attempts - 1) in (Fault.NONE, Fault.SLOW)
