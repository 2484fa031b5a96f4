"""What tests of scripts in a real browser share: one browser a module, a session's view of it, and a site.

A module that needs another `page` or `site` has its own, which takes the place of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.browser.chromium import Running
from tests.script_runs import Runs, browser, runs
from tests.sites import Loop, Site


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    """An event loop that lives as long as the module's tests."""
    with Loop() as made:
        yield made


@pytest.fixture(scope="module")
def running(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A browser."""
    with browser(loop, tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def page(loop: Loop, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A session's view of it, which all tests of a module share."""
    with runs(loop, running, tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture
def fresh(loop: Loop, running: Running, tmp_path: Path) -> Iterator[Runs]:
    """A view of its own, for tests that count tabs, close them or look for files."""
    with runs(loop, running, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def at_rest(loop: Loop, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A page for scripts that leave it as it is."""
    html = """<p>text</p><a id=l class='x y' href=/q onclick='f()'>q</a>
        <script>function pageFunction() { throw new Error('thrown by the page') }</script>"""
    with Site({"/": html}) as site, runs(loop, running, tmp_path_factory.mktemp("work")) as made:
        made.open(site.url())
        yield made


@pytest.fixture
def site() -> Iterator[Site]:
    """Two pages, the first with a link to the second."""
    with Site({"/": "<title>one</title><p>first page</p><a href=/two>next</a>"}) as made:
        made.pages["/two"] = "<title>two</title><p>second page</p>"
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on what cannot be acted on."""
    monkeypatch.setattr("gad.browser.actions.ACTION_SECONDS", 0.6)
