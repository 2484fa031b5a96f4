"""What a script sets off, pages, requests, tabs, downloads and messages: it is waited for and told."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.script_runs import Runs, text_of
from tests.sites import Asked, Served, Site


def test_a_script_that_sets_off_nothing(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch("document.title")
    assert (done.value, done.moved, done.unsettled, done.brief) == ("one", False, "", ())


def test_a_link_leads_to_another_page(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch("document.querySelector('a').click(); 'clicked'")
    assert (done.value, done.moved, done.error) == ("clicked", True, "")
    assert text_of(done.before).startswith("first page") and text_of(done.after) == "second page"
    assert done.after is not None and done.after.url == site.url("/two")


def test_a_page_that_leaves_ends_the_script(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch(f"location.href = '{site.url('/two', 'b.localhost')}'; await new Promise(() => {{}})")
    assert (done.returned, done.error, done.moved) == (False, "", True)
    assert done.notes == ("the script ended when the page left",)
    assert text_of(done.after) == "second page"


def test_a_slow_page_is_waited_for(page: Runs, site: Site) -> None:
    come = threading.Event()
    site.pages["/slow"] = Served("<p>here at last</p>", wait=come)
    page.open(site.url())
    threading.Timer(0.8, come.set).start()
    done = page.watch("location.href = '/slow'; 1")
    assert text_of(done.after) == "here at last" and done.moved and not done.unsettled


def test_a_page_that_does_not_come_is_said(fresh: Runs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.browser.settle.ARRIVAL_SECONDS", 0.3)
    never = threading.Event()
    site.pages["/never"] = Served("", wait=never)
    fresh.open(site.url())
    try:
        done = fresh.watch("location.href = '/never'; 1")
        host = site.url("").removeprefix("http://")
        assert done.unsettled == f"no answer came from {host}/never; going there was stopped" and done.value == 1
        assert text_of(done.after).startswith("first page") and not done.moved
    finally:
        never.set()


def test_a_page_that_comes_anew_all_the_time_is_not_waited_for(
    fresh: Runs, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.browser.settle.ARRIVAL_SECONDS", 0.5)
    site.pages["/again"] = "<p>again</p><script>setTimeout(() => location.reload(), 60)</script>"
    fresh.open(site.url())
    done = fresh.watch("location.href = '/again'; 1")
    assert done.moved and done.unsettled != ""


def test_a_form_is_sent_and_its_answer_shown(page: Runs, site: Site) -> None:
    def answer(asked: Asked) -> Served:
        return Served(f"<p>got {asked.body.decode()}</p>")

    site.pages["/"] = "<form action=/send method=post><input name=q><button>go</button></form>"
    site.pages["/send"] = answer
    page.open(site.url())
    done = page.watch("document.forms[0].q.value = 'tea'; document.forms[0].requestSubmit()")
    assert text_of(done.after) == "got q=tea" and done.moved


def test_going_back(page: Runs, site: Site) -> None:
    page.open(site.url())
    page.open(site.url("/two"))
    done = page.watch("history.back()")
    assert done.moved and done.after is not None and done.after.title == "one"


def test_pushing_a_state_shows_the_same_document(page: Runs, site: Site) -> None:
    site.pages["/"] = """<div id=app>home</div><script>
        function go() { history.pushState({}, '', '/deep'); setTimeout(() => { app.textContent = 'deep page' }, 50) }
    </script>"""
    page.open(site.url())
    done = page.watch("go()")
    assert not done.moved and text_of(done.before) == "home" and text_of(done.after) == "deep page"
    assert done.after is not None and done.after.url == site.url("/deep")


def test_what_is_fetched_is_shown(page: Runs, site: Site) -> None:
    come = threading.Event()
    site.pages["/data"] = Served('{"text": "fetched"}', type="application/json", wait=come)
    site.pages["/"] = """<p id=out></p><script>
        async function load() {
            const found = await (await fetch('/data')).json();
            setTimeout(() => { out.textContent = found.text }, 60);
        }
    </script>"""
    page.open(site.url())
    threading.Timer(0.6, come.set).start()
    done = page.watch("load(); 0")
    assert text_of(done.after) == "fetched" and done.unsettled == ""


def test_what_goes_on_is_said(page: Runs, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.browser.settle.REQUEST_SECONDS", 0.3)
    monkeypatch.setattr("gad.browser.settle.CHANGE_SECONDS", 0.3)
    never = threading.Event()
    site.pages["/poll"] = Served("", wait=never)
    page.open(site.url())
    try:
        done = page.watch("fetch('/poll?a=1'); fetch('/poll?a=2'); setInterval(() => { document.title += 'x' }, 20); 0")
        host = site.url("").removeprefix("http://")
        assert done.unsettled == f"2 requests: {host}/poll; the page keeps changing"
        assert "request" not in page.watch("1").unsettled  # those of an earlier script do not count
    finally:
        never.set()


def test_a_toast_that_vanishes_is_told(page: Runs, site: Site) -> None:
    site.pages["/"] = """<button onclick="save()">save</button><script>
        function save() {
            const toast = document.createElement('div');
            toast.textContent = 'Saved as draft';
            document.body.append(toast);
            setTimeout(() => toast.remove(), 300);
        }
    </script>"""
    page.open(site.url())
    done = page.watch("save()")
    assert done.brief == ("Saved as draft",) or "Saved as draft" in text_of(done.after)
    done = page.watch("save(); await new Promise(f => setTimeout(f, 400))")
    assert done.brief == ("Saved as draft",)


def test_dialogs_are_told_and_a_script_can_answer_them(page: Runs, site: Site) -> None:
    page.open(site.url())
    done = page.watch("alert('watch out'); confirm('sure?')")
    assert done.value is False
    assert [event.text for event in done.events] == ["alert: watch out (accepted)", "confirm: sure? (dismissed)"]
    done = page.watch("window.confirm = () => true; confirm('sure?')")
    assert (done.value, done.events) == (True, ())


@pytest.mark.parametrize(
    "script", ["open('/two')", "document.querySelector('a').target = '_blank'; document.querySelector('a').click()"]
)
def test_a_new_tab_is_the_one_shown(fresh: Runs, site: Site, script: str) -> None:
    fresh.open(site.url())
    done = fresh.watch(f"{script}; 1")
    assert text_of(done.after) == "second page" and done.before is None and done.moved
    assert [(tab.number, tab.active) for tab in done.tabs] == [(1, False), (2, True)]


def test_a_script_may_close_its_tab(fresh: Runs, site: Site) -> None:
    fresh.open(site.url())
    fresh.watch("open('/two')")
    done = fresh.watch("window.close(); await new Promise(() => {})")
    assert done.error == "" and [tab.number for tab in done.tabs] == [1]
    assert text_of(done.after).startswith("first page")


def test_a_download_is_waited_for(fresh: Runs, site: Site, tmp_path: Path) -> None:
    site.pages["/file"] = Served(
        "data", type="application/zip", headers={"content-disposition": "attachment; filename=a.zip"}
    )
    site.pages["/"] = "<a href=/file>get</a>"
    fresh.open(site.url())
    done = fresh.watch("document.querySelector('a').click()")
    assert (tmp_path / "downloads" / "a.zip").read_text() == "data"
    assert not done.moved and done.unsettled == "" and done.events[0].kind == "download"


def test_without_monitor_nobody_looks_or_waits(page: Runs, site: Site) -> None:
    never = threading.Event()
    site.pages["/poll"] = Served("", wait=never)
    page.open(site.url())
    try:
        done = page.run("fetch('/poll'); 5")
        assert (done.value, done.before, done.after, done.unsettled) == (5, None, None, "")
    finally:
        never.set()
