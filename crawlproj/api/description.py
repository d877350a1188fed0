"""The OpenAPI description; ``python -m crawlproj.api.description`` prints docs/openapi.json."""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from crawlproj.api.answers import ProblemAnswer

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
#: Refusals of every operation, and of those that write.
_ALWAYS = {
    400: "The request is malformed.",
    401: "A token is missing or unknown.",
    404: "There is no such job or page.",
    421: "The Host header names another server.",
    422: "Values cannot be used; `errors` has each field.",
    429: "Too many requests, jobs or streams; see Retry-After.",
    503: "Redis or the disk cannot be used now.",
}
_WRITES = {
    403: "The token may only read, or the request comes from a page of another site.",
    408: "The body came too slowly.",
    409: "The state of the job does not allow it, or its name is taken.",
    413: "The body is too large.",
    415: "The body is not JSON.",
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of *app*, with the refusals that all operations have in common."""
    if app.openapi_schema:
        return app.openapi_schema
    schema = get_openapi(
        title="crawlproj",
        version="1",
        description="Jobs of a polite web crawler: submit, watch, read, export. A job is a run.",
        routes=app.routes,
    )
    schemas = schema["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = ProblemAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{}, {"token": []}]
    for path in schema["paths"].values():
        for method, operation in path.items():
            responses = operation["responses"]
            for status, text in (_ALWAYS if method == "get" else _ALWAYS | _WRITES).items():
                known = responses.get(str(status), {}).get("content", {})
                if status == 422:
                    known = {}
                responses[str(status)] = {"description": text, "content": {**known, **_PROBLEM}}
            for status, response in responses.items():
                if status >= "400":
                    response.setdefault("content", _PROBLEM)
    app.openapi_schema = schema
    return schema


def main() -> None:
    from crawlproj.api.app import make_app
    from crawlproj.config import Config

    text = json.dumps(describe(make_app(Config())), indent=1, sort_keys=True, ensure_ascii=False)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
