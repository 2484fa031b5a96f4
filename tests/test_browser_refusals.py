"""What the helper `gad` refuses or cannot do, and that no page can use it or be in its way."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.script_runs import Runs, text_of
from tests.sites import Served, Site


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        yield made


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "error"),
    [
        ("<button disabled>b</button>", "it is not enabled"),
        ("<button style='display:none'>b</button>", "it is not visible"),
        ("<button>b</button><div id=veil style='position:fixed;inset:0'>wait</div>",
         'something is in front of it: <div id="veil">wait</div>'),
        ("<p>no button</p>", "the selector 'button' finds nothing on the page: look again with web_scan"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_said_in_one_line(page: Runs, site: Site, quick: None, html: str, error: str) -> None:
    page.show(site, html)
    assert page.run("1;\nawait gad.click('button')").error == f"Error: gad.click: {error} (line 2:11)"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("gad.click()", "it takes 1 arguments"),
        ("gad.click(document.body)", "gad.click: argument 1 is of type object; give refs or CSS selectors, and texts"),
        ("gad.type('p', 'x')", "nothing can be typed into it"),
        ("gad.goto('chrome://version')", "chrome: addresses cannot be opened"),
        ("gad.goto('javascript:alert(1)')", "javascript: addresses cannot be opened"),
        ("gad.goto('view-source:http://a.example/')", "view-source: addresses cannot be opened"),
    ],
)
def test_calls_that_make_no_sense(page: Runs, site: Site, quick: None, call: str, error: str) -> None:
    page.show(site, "<p>text</p>")
    assert error in page.run(f"await {call}").error


def test_a_script_can_catch_what_goes_wrong(page: Runs, site: Site, quick: None) -> None:
    page.show(site, "<p>text</p>")
    done = page.run("try { await gad.click('#none') } catch (e) { 'caught ' + e.message }")
    assert done.value.startswith("caught gad.click: the selector '#none' finds nothing")


def test_calls_that_are_not_awaited_are_done_and_their_errors_told(page: Runs, site: Site, quick: None) -> None:
    page.show(
        site,
        "<input><button onclick='document.title += value + document.querySelector(\"input\").value'>b</button>",
    )
    done = page.watch("gad.type('input', 'x'); gad.click('button'); 'sent'")
    assert done.value == "sent" and done.error == "" and page.run("document.title").value == "x"
    assert page.watch("gad.click('#none'); 1").error.startswith("gad.click: the selector")


def test_a_click_is_the_last_value(page: Runs, site: Site) -> None:
    page.show(site, "<button onclick='document.title = 1'>b</button>")
    done = page.run("gad.click('button')")
    assert (done.error, done.returned) == ("", False) and page.run("document.title").value == "1"


# -- pages that would like to have it ------------------------------------------------------------

SPY = """<button onclick="document.title = event.isTrusted">b</button><input type=file><script>
    found = [];
    const known = new Set(Reflect.ownKeys(window));
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
        for (const key of Reflect.ownKeys(window)) if (!known.has(key)) {
            known.add(key);
            found.push(String(key));
            try { window[key]('click', 'button') } catch {}
        }
        channel.port2.postMessage(0);
    };
    known.add('spied'); known.add('found');
    channel.port2.postMessage(0);
    const bad = () => { throw new Error('overwritten') };
    for (const type of [Array, String, Function, Object])
        for (const name of Object.getOwnPropertyNames(type.prototype))
            if (!['constructor', 'push', 'has'].includes(name) && typeof type.prototype[name] === 'function')
                type.prototype[name] = bad;
    JSON.stringify = JSON.parse = bad;
    Promise.prototype.then = bad;
    window.Promise = bad;
</script>"""


def test_a_hostile_page_finds_no_way_in_and_the_helper_works(page: Runs, site: Site) -> None:
    page.show(site, SPY)
    done = page.run("window.decoy = 0; await gad.click('button'); await gad.press('Tab'); document.title")
    assert (done.error, done.value) == ("", "true")
    assert page.run("found").value == ["decoy"]  # so it has looked


def test_the_page_keeps_a_gad_of_its_own(page: Runs, site: Site) -> None:
    page.show(site, "<script>var gad = {mine: 1}</script><button onclick='document.title = gad.mine'>b</button>")
    assert page.run("await gad.click('button'); [document.title, typeof gad.mine]").value == ["1", "undefined"]
    assert page.run("window.gad").value == {"mine": 1}


def test_the_helper_is_of_no_use_when_the_script_has_ended(page: Runs, site: Site) -> None:
    page.show(site, "<button onclick='document.title = 1'>b</button>")
    page.run("window.kept = gad; 1")
    page.run("window.late = kept.click('button').catch(e => e.message); 1")
    assert page.run("await late").value == "gad.click: the script has ended"
    assert page.run("document.title").value == ""


def test_a_script_makes_a_thousand_calls_at_most(page: Runs, site: Site) -> None:
    page.show(site, "<p>text</p>")
    done = page.run("const calls = []; for (let i = 0; i < 1001; i++) calls.push(gad.hover().catch(e => e.message));"
                    "(await Promise.all(calls)).slice(-2)")  # fmt: skip
    assert done.value == ["gad.hover: it takes 1 arguments", "gad.hover: more than 1000 calls in one script"]


def test_a_call_in_a_page_that_is_slow_to_leave(page: Runs, site: Site) -> None:
    come = threading.Event()
    site.pages["/slow"] = Served("<p>slow page</p>", wait=come)
    page.show(site, "<a href=/slow>go</a>")
    threading.Timer(0.7, come.set).start()
    done = page.watch("await gad.click('a'); await gad.click('a'); 1")
    assert text_of(done.after) == "slow page" and done.moved
