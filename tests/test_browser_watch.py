"""What the eyes notice between two looks, in real Chromium."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Page as Tab

from gad.browser import eyes
from tests.sites import Loop, Served, Site

CHROMIUM = "/usr/bin/chromium"


class Watcher:
    """One tab, and what happens in it while it is watched."""

    def __init__(self, loop: Loop, site: Site, tab: Tab) -> None:
        self.loop = loop
        self.site = site
        self.tab = tab

    def brief(self, html: str, script: str, *, done: str = "window.done === true") -> tuple[str, ...]:
        """Watch a page while `script` runs until `done` holds in it, and tell what was shown in between only."""
        self.site.pages["/"] = f"<!doctype html><body>{html}</body>"

        async def go() -> eyes.Watched | None:
            await self.tab.goto(self.site.url("/"))
            await eyes.watch(self.tab)
            await self.tab.evaluate(f"() => {{ {script} }}")
            await self.tab.wait_for_function(done)
            return await eyes.watched(self.tab)

        found = self.loop.run(go())
        assert found is not None
        return found.brief


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    with Loop() as loop, Site() as site:

        async def start() -> tuple[Playwright, Browser, Tab]:
            playwright = await async_playwright().start()
            await eyes.install(playwright)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM)
            return playwright, browser, await browser.new_page()

        async def stop() -> None:
            await browser.close()
            await playwright.stop()

        playwright, browser, tab = loop.run(start())
        yield Watcher(loop, site, tab)
        loop.run(stop())


END = "setTimeout(() => { window.done = true }, 60)"
FADING = "<style>.t{opacity:0;transition:opacity 80ms} .t.on{opacity:1}</style>"


@pytest.mark.parametrize(
    ("html", "script"),
    [
        ("", "const t = document.createElement('div'); t.innerHTML = '<b>Saved</b> it'; document.body.append(t);"
             f"setTimeout(() => {{ t.remove(); {END} }}, 300)"),
        (f"{FADING}<div id=t class=t>Saved it</div>", f"t.className = 't on'; "
        f"setTimeout(() => {{ t.className = 't'; setTimeout(() => {{ {END} }}, 120) }}, 300)"),
        (FADING, "const t = document.createElement('p'); t.className = 't'; t.textContent = 'Saved it'; "
        "document.body.append(t);"
                 f"requestAnimationFrame(() => requestAnimationFrame(() => t.classList.add('on'))); "
                 f"setTimeout(() => {{ t.remove(); {END} }}, 300)"),
        ("<div id=t style='display:none'>Saved it</div>", f"t.style.display = ''; "
        f"setTimeout(() => {{ t.style.display = 'none'; {END} }}, 300)"),
        ("<div id=t hidden>Saved it</div>", f"t.hidden = false; setTimeout(() => {{ t.hidden = true; {END} }}, 300)"),
        ("<p role=status id=t>&nbsp;</p>", f"t.textContent = 'Saved it'; "
        f"setTimeout(() => {{ t.textContent = ''; {END} }}, 300)"),
        ("<p aria-live=polite id=t>Ready</p>", f"t.firstChild.data = 'Saved it'; "
        f"setTimeout(() => {{ t.firstChild.data = 'Ready'; {END} }}, 300)"),
        ("<style>#t{display:none} .show #t{display:block}</style><div id=t>Saved it</div><p>Text</p>",
         f"document.body.className = 'show'; setTimeout(() => {{ document.body.className = ''; {END} }}, 300)"),
        ("<x-host></x-host>", "const host = document.querySelector('x-host');"
         f"setTimeout(() => {{ host.root.innerHTML = '<p>Saved it</p>'; "
         f"setTimeout(() => {{ host.root.innerHTML = ''; {END} }}, 300) }}, 20)"),
        ("<style>@keyframes in { from {opacity:0} to {opacity:1} } .t{animation:in 100ms}</style>",
         "const t = document.createElement('div'); t.className = 't'; t.textContent = 'Saved it'; "
         "document.body.append(t);"
         f"setTimeout(() => {{ t.remove(); {END} }}, 300)"),
    ],
    ids=["added", "fades-by-class", "added-then-fades", "style", "hidden", "live-region", "text", "class-above",
         "shadow", "animation"],
)  # fmt: skip
def test_a_message_that_was_shown_for_300_ms_is_told(watcher: Watcher, html: str, script: str) -> None:
    if "x-host" in html:
        html += "<script>{const h = document.querySelector('x-host'); h.root = h.attachShadow({mode: 'open'})}</script>"
    assert watcher.brief(f"<h1>Page</h1>{html}", script) == ("Saved it",)


def test_what_is_still_there_and_what_was_never_seen_is_not_told(watcher: Watcher) -> None:
    script = (
        "const add = (html) => document.body.insertAdjacentHTML('beforeend', html);"
        "add('<p>Stays</p>'); add('<p id=h style=display:none>Never seen</p>'); add('<script>1</scr' + 'ipt>');"
        f"first.className = 'x'; const m = moved; m.remove(); document.body.prepend(m); "
        f"setTimeout(() => {{ h.remove(); {END} }}, 150)"
    )
    assert watcher.brief("<p id=first>There before</p><p id=moved>Moved</p>", script) == ()


def test_what_was_there_before_and_went_is_not_told(watcher: Watcher) -> None:
    assert watcher.brief("<p id=t>Old</p>", f"t.className = 'a'; setTimeout(() => {{ t.remove(); {END} }}, 100)") == ()


def test_long_texts_are_cut_and_there_are_at_most_twenty(watcher: Watcher) -> None:
    script = (
        "const all = []; for (let i = 0; i < 40; i++) { const p = document.createElement('p'); "
        "p.textContent = 'Note ' + i + ' x'.repeat(300);"
        f"document.body.append(p); all.push(p) }} setTimeout(() => {{ for (const p of all) p.remove(); {END} }}, 200)"
    )
    found = watcher.brief("", script)
    assert len(found) == 20
    assert all(len(text) <= 201 and text.startswith("Note ") for text in found)
    assert len(set(found)) == 20


def test_a_clock_does_not_fill_the_list(watcher: Watcher) -> None:
    script = (
        "let n = 0; const timer = setInterval(() => { t.textContent = 'Tick ' + n++;"
        f"if (n > 15) {{ clearInterval(timer); {END} }} }}, 20)"
    )
    assert len(watcher.brief("<p id=t>Tick</p>", script)) <= 2


def test_messages_in_frames_are_told(watcher: Watcher) -> None:
    watcher.site.pages["/in"] = (
        "<p>in</p><script>onmessage = () => { const t = document.createElement('div'); "
        "t.textContent = 'From the frame';"
        "document.body.append(t); setTimeout(() => { t.remove(); setTimeout(() => parent.postMessage(1, '*'), "
        "60) }, 300) }</script>"
    )
    html = f"<iframe id=f src='{watcher.site.url('/in', host='b.localhost')}'></iframe>"
    script = "onmessage = () => { window.done = true }; f.contentWindow.postMessage(1, '*')"
    assert watcher.brief(html, script) == ("From the frame",)


def test_quiet_is_the_time_since_the_last_change(watcher: Watcher) -> None:
    watcher.site.pages["/"] = "<p id=t>1</p>"

    async def go() -> tuple[float, float]:
        await watcher.tab.goto(watcher.site.url("/"))
        await eyes.watch(watcher.tab)
        await watcher.tab.wait_for_function("() => performance.now() > (window.since ??= performance.now()) + 150")
        first = await eyes.watched(watcher.tab)
        await watcher.tab.evaluate("t.textContent = 2")
        second = await eyes.watched(watcher.tab)
        assert first is not None
        assert second is not None
        return first.quiet, second.quiet

    first, second = watcher.loop.run(go())
    assert first >= 0.15
    assert 0 <= second < first


def test_another_document_has_noticed_nothing(watcher: Watcher) -> None:
    watcher.site.pages["/"] = "<p>1</p>"
    watcher.site.pages["/two"] = "<p>2</p>"

    async def go() -> tuple[object, object, object]:
        await watcher.tab.goto(watcher.site.url("/"))
        never = await eyes.watched(watcher.tab)
        await eyes.watch(watcher.tab)
        await watcher.tab.evaluate("history.pushState({}, '', '/other')")
        same = await eyes.watched(watcher.tab)
        await watcher.tab.goto(watcher.site.url("/two"))
        return never, same, await eyes.watched(watcher.tab)

    never, same, other = watcher.loop.run(go())
    assert never is None
    assert same is not None
    assert other is None


def test_watching_again_begins_anew(watcher: Watcher) -> None:
    async def again() -> eyes.Watched | None:
        await eyes.watch(watcher.tab)
        return await eyes.watched(watcher.tab)

    script = (
        "const t = document.createElement('div'); t.textContent = 'Gone'; document.body.append(t);"
        f"setTimeout(() => {{ t.remove(); {END} }}, 100)"
    )
    assert watcher.brief("", script) == ("Gone",)
    found = watcher.loop.run(again())
    assert found is not None
    assert found.brief == ()


def test_a_frame_that_never_loads_does_not_stop_watching(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(eyes, "PING_SECONDS", 0.3)
    watcher.site.pages["/never"] = Served("late", wait=never)
    watcher.site.pages["/"] = f"<p>Out</p><iframe src='{watcher.site.url('/never', host='c.localhost')}'></iframe>"

    async def go() -> eyes.Watched | None:
        await watcher.tab.goto(watcher.site.url("/"), wait_until="commit")
        await watcher.tab.wait_for_selector("text=Out")
        await asyncio.wait_for(eyes.watch(watcher.tab), 5)
        return await asyncio.wait_for(eyes.watched(watcher.tab), 5)

    try:
        assert watcher.loop.run(go()) is not None
    finally:
        never.set()
