"""Errors as ``application/problem+json`` (RFC 9457), with fields and remedies."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from crawlproj.errors import BadArgument, CrawlError, Problem, RedisRefused, RedisUnreachable, RunMismatch

logger = logging.getLogger(__name__)

#: What callers give is shown up to here.
_MOST_SHOWN = 200
#: What to do about pydantic's kinds of errors whose message does not say it.
_REMEDIES = {
    "missing": "Add it.",
    "extra_forbidden": "Leave it out, or correct its name; /api/openapi.json lists all fields.",
    "json_invalid": "Send JSON.",
    "model_attributes_type": "Send a JSON object, with Content-Type: application/json.",
}


class Refused(Exception):
    """A request that is not carried out. *errors* are problems of its fields."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = dict(headers or {})

    def response(self) -> Response:
        return problem(self.status, self.detail, self.errors, self.headers)


def problem(
    status: int,
    detail: str,
    errors: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": [
            {
                "field": one.field,
                "value": one.value[:_MOST_SHOWN],
                "problem": one.wrong,
                "remedy": one.remedy,
            }
            for one in errors
        ],
    }
    return Response(msgspec.json.encode(body), status, headers, "application/problem+json")


def no_job(run: str) -> Refused:
    return Refused(404, f"There is no job {run[:_MOST_SHOWN]!r}. GET /api/jobs lists all.")


def bad_field(field: str, value: object, wrong: str, remedy: str = "") -> Refused:
    return Refused(422, wrong, [Problem(field, str(value), wrong, remedy)])


def handle_errors(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Answer every error of *app*, which has these *routes*, as a problem."""

    async def refused(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, Refused)
        return exc.response()

    async def invalid(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError)
        errors = [_of_pydantic(error) for error in exc.errors()]
        return problem(422, f"{len(errors)} of the values given cannot be used.", errors)

    async def http(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        detail = {
            400: "The body cannot be read as JSON.",
            404: f"There is nothing at {request.url.path[:_MOST_SHOWN]!r}.",
        }.get(exc.status_code, f"{request.method} is not possible here: {exc.detail}.")
        headers = {"Allow": _methods_at(request, routes)} if exc.status_code == 405 else exc.headers
        return problem(exc.status_code, detail, headers=headers)

    async def crawl_error(request: Request, exc: Exception) -> Response:
        if isinstance(exc, BadArgument | RunMismatch):
            return problem(409, str(exc))
        if isinstance(exc, RedisUnreachable | RedisRefused):
            return problem(503, str(exc), headers={"Retry-After": "5"})
        logger.error("a request failed", exc_info=exc, extra={"path": request.url.path})
        return problem(500, str(exc))

    async def timeout(request: Request, exc: Exception) -> Response:
        return problem(503, "Redis or the disk did not answer in time.", headers={"Retry-After": "5"})

    async def unexpected(request: Request, exc: Exception) -> Response:
        return problem(500, "An unexpected error; the log of the server has it.")

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(CrawlError, crawl_error)
    app.add_exception_handler(TimeoutError, timeout)
    app.add_exception_handler(Exception, unexpected)


def _methods_at(request: Request, routes: Sequence[BaseRoute]) -> str:
    """Return the methods of all *routes* that have the path of *request*."""
    matching = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
    return ", ".join(sorted(methods or {"GET"}))


def _of_pydantic(error: Mapping[str, Any]) -> Problem:
    place = [str(part) for part in error["loc"] if part not in ("body", "query", "path", "header")]
    # Of `str | list[str]` the name of the type that was tried is not a field.
    if error["type"] == "json_invalid":
        # The place in the text is not a field.
        place = []
    name = ".".join(part for part in place if not part.startswith(("list[", "str", "int", "constrained-")))
    shown = error.get("input")
    value = "" if shown is None or isinstance(shown, (dict, list, bytes)) else str(shown)
    wrong = f"{name or 'The body'}: {error['msg']}."
    return Problem(name or "body", value, wrong, _REMEDIES.get(error["type"], ""))
