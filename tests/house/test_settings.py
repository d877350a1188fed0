"""The settings as shipped are the documented defaults, and are wired to code that exists."""

from __future__ import annotations

from importlib import util
from types import ModuleType

import pytest
from scrapy.settings import Settings

from crawlproj.config import Config, load_config


def load_settings() -> ModuleType:
    """Read the settings as a new process would; the module that others have imported stays as it is."""
    spec = util.find_spec("crawlproj.settings")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Scrapy's settings for this project, whatever the environment says."""
    for name in ("REDIS_URL", "REDIS_PASSWORD_FILE", "CRAWL_DATA", "CRAWL_DIRECT", "CRAWL_CONTACT"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings()
    settings.setmodule(load_settings(), priority="project")
    return settings


def test_the_shipped_settings_are_the_documented_defaults(shipped: Settings) -> None:
    assert load_config(dict(shipped)) == Config()


def test_redis_url_and_the_data_directory_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere:6379/1")
    monkeypatch.setenv("CRAWL_DATA", "elsewhere")

    module = load_settings()

    assert (module.REDIS_URL, module.CRAWL_DATA) == ("redis://elsewhere:6379/1", "elsewhere")


def test_what_runs_python_for_strangers_is_off(shipped: Settings) -> None:
    assert not shipped.getbool("TELNETCONSOLE_ENABLED")
    assert not shipped.getbool("REMOTE_CONTROL_ENABLED")
