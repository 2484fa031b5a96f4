"""Scripts and pages that do not come to an end: they are stopped, said, and the tab goes on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from gad.browser.visits import RESORTS
from tests.script_runs import Runs
from tests.sites import Served, Site


@pytest.mark.parametrize(
    "script",
    ["while (1);", "await 0; while (1);", "while (1) await 0", "await new Promise(f => setTimeout(f, 20)); for (;;);"],
)
def test_a_busy_script_is_stopped_and_the_tab_goes_on(at_rest: Runs, script: str) -> None:
    done = at_rest.run(script, seconds=0.4)
    assert done.error == "the script did not end within 0.4 s; a script without end was stopped"
    assert at_rest.run("document.links.length").value == 1


def test_a_script_that_waits_for_ever_is_given_up(at_rest: Runs) -> None:
    done = at_rest.run("window.f = new Promise(() => {}); await f", seconds=0.4)
    assert done.error.startswith("the script did not end within 0.4 s; what it waits for did not come")
    assert at_rest.run("document.links.length").value == 1


def test_a_value_that_takes_for_ever_to_read_is_given_up(at_rest: Runs) -> None:
    done = at_rest.run("({get a() { while (1); }})", seconds=0.4)
    assert "did not end within 0.4 s" in done.error
    assert at_rest.run("1").value == 1


def test_cancelling_stops_a_busy_script(page: Runs, site: Site) -> None:
    page.open(site.url())

    async def cancel() -> None:
        begun = asyncio.Event()
        tab = await page.visit.tab()
        tab.page.on("console", lambda _: begun.set())
        task = asyncio.create_task(page.start("console.log('on'); while (1);"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    page.loop.run(cancel())
    assert page.run("document.title").value == "one"


def test_a_page_that_is_stuck_by_itself_is_freed_and_said(
    page: Runs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.script.LOOK_SECONDS", 0.5)
    page.open(site.url())

    async def stuck() -> None:
        tab = await page.visit.tab()
        async with tab.page.expect_console_message():
            await tab.page.evaluate("setTimeout(() => { console.log('on'); while (1); }, 0)")

    page.loop.run(stuck())
    done = page.watch("document.title")
    assert (done.value, done.notes) == ("one", ("tab 1: a script without end was stopped",))


def test_a_page_that_cannot_be_freed_is_closed(fresh: Runs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.open(site.url())
    with monkeypatch.context() as patch:
        patch.setattr("gad.browser.script.LOOK_SECONDS", 0.3)
        patch.setattr("gad.browser.visits.FREE_SECONDS", 0.3)
        patch.setattr("gad.browser.visits.RESORTS", RESORTS[:1])
        error = fresh.run("while (1);", seconds=0.4).error
    assert error.endswith("0.4 s; tab 1 was closed: a script of its page runs without end")
    assert fresh.watch("location.href").value == "about:blank"


def test_a_script_that_leaves_the_page_stuck_is_stopped(
    page: Runs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.script.LOOK_SECONDS", 1.0)
    monkeypatch.setattr("gad.browser.settle.STUCK_SECONDS", 0.3)
    page.open(site.url())
    done = page.watch("setTimeout(() => { while (1); }, 150); 'begun'", seconds=1)
    assert done.value == "begun" and done.notes == ("tab 1: a script without end was stopped",)
    assert page.watch("document.title").value == "one"


def test_a_page_that_is_about_to_leave_is_not_stuck(page: Runs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.browser.script.LOOK_SECONDS", 0.3)
    site.pages["/never"] = Served("late", wait=(wait := threading.Event()))
    page.open(site.url())
    page.run("setTimeout(() => { location = '/never' }, 50)")
    while not any(asked.path == "/never" for asked in site.asked):
        time.sleep(0.01)
    done = page.watch("document.title")
    wait.set()
    assert done.value == "one" and done.notes == ("tab 1: where it was going did not answer, and that was stopped",)


@pytest.mark.parametrize("script", ["await gad.goto('/held')", "location = '/held'; 1"])
def test_cancelling_stops_where_the_tab_is_going(page: Runs, site: Site, script: str) -> None:
    site.asked.clear()
    site.pages["/held"] = Served("late", wait=(wait := threading.Event()))
    page.open(site.url())

    async def cancel() -> None:
        task = asyncio.create_task(page.start(script, monitor=True))
        while not any(asked.path == "/held" for asked in site.asked):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    page.loop.run(cancel(), 5)
    done = page.watch("document.title")
    wait.set()
    assert (done.value, done.notes) == ("one", ())
