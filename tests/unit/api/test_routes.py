"""Rules for all routes."""

from __future__ import annotations

from fastapi.routing import APIRoute

from crawlproj.api.app import ROUTERS
from crawlproj.api.service import Served

#: What may take as long as the client likes.
LONG = {"/api/jobs/{job}/events", "/api/jobs/{job}/export", "/api/jobs/{job}/export-link"}


def test_every_answer_has_a_time_limit_but_streams_and_downloads() -> None:
    limit = Served.__metadata__[0].dependency  # type: ignore[attr-defined]
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]

    unlimited = {
        route.path for route in routes if limit not in [one.call for one in route.dependant.dependencies]
    }

    assert len(routes) > 15
    assert unlimited == LONG
