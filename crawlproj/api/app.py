"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from crawlproj.api import jobs, pages, system
from crawlproj.api.access import Access, Tokens
from crawlproj.api.description import describe
from crawlproj.api.links import Links
from crawlproj.api.problems import handle_errors
from crawlproj.api.service import Service
from crawlproj.config import Config

ROUTERS = (jobs.router, pages.router, system.router)
STATIC = Path(__file__).parent / "static"


class _Files(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Let browsers ask each time: modules of two versions would not fit together."""
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def make_app(
    config: Config,
    *,
    host: str = "127.0.0.1",
    settings: Mapping[str, Any] | None = None,
    given: Mapping[str, str] | None = None,
) -> FastAPI:
    """Return the application. *settings* are all settings, *given* those that a person gave the server.

    Raises BadSetting for wrong tokens.
    """
    tokens = Tokens.of(config)
    links = Links((*tokens.read, *tokens.write))
    service = Service(config, settings or {}, given or {}, links)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    # No pages of documentation: they would load scripts from elsewhere.
    app = FastAPI(
        title="crawlproj",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    handle_errors(app, [route for router in ROUTERS for route in router.routes])
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]  # as FastAPI documents it

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", _Files(directory=STATIC, check_dir=False), name="static")
    app.add_middleware(Access, config=config, host=host, tokens=tokens, links=links)
    return app
