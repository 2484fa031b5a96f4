"""The helper `gad` in scripts: trusted input to elements by ref or selector, and what no page gets from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.browser.actions import checked_address, checked_file, reason
from gad.browser.chromium import Running
from gad.errors import BrowserError
from tests.script_runs import Runs, browser, runs, text_of
from tests.sites import Asked, Loop, Served, Site


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.fixture(scope="module")
def running(loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with browser(loop, tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def page(loop: Loop, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs(loop, running, tmp_path_factory.mktemp("work")) as made:
        yield made


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.browser.actions.ACTION_SECONDS", 0.6)


def opened(page: Runs, site: Site, html: str) -> None:
    site.pages["/"] = html
    page.open(site.url())


# -- input ---------------------------------------------------------------------------------------


def test_clicks_are_trusted(page: Runs, site: Site) -> None:
    opened(page, site, "<button onclick='document.title = event.isTrusted'>press</button>")
    assert page.run(f"await gad.click({page.ref('press')}); document.title").value == "true"
    assert page.run("document.title = ''; await gad.click('button'); document.title").value == "true"


def test_typing_replaces_what_is_there_key_by_key(page: Runs, site: Site) -> None:
    opened(page, site, """<input placeholder=name value=old onkeydown="keys += event.key"><script>keys = ''</script>
        <textarea></textarea>""")  # fmt: skip
    ref = page.ref("name")
    done = page.run(f"await gad.type({ref}, 'new'); [document.querySelector('input').value, keys]")
    assert done.value == ["new", "Deletenew"]  # Delete empties it
    long = "a long text, " * 30
    assert page.run(f"await gad.type({ref}, `{long}`); document.querySelector('input').value").value == long
    text = "one\ntwo"
    assert page.run(f"await gad.type('textarea', `{text}`); document.querySelector('textarea').value").value == text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "2024-02-29"),
        ("time", "13:45"),
        ("datetime-local", "2024-02-29T13:45"),
        ("month", "2024-02"),
        ("color", "#ff0000"),
        ("range", "30"),
        ("number", "42"),
        ("email", "a@b.example"),
        ("password", "secret"),
        ("search", "words"),
    ],
)
def test_typing_into_inputs_of_every_type(page: Runs, site: Site, kind: str, value: str) -> None:
    opened(page, site, f"<input type={kind}>")
    assert page.run(f"await gad.type('input', '{value}'); document.querySelector('input').value").value == value


def test_typing_into_what_is_editable(page: Runs, site: Site) -> None:
    opened(page, site, "<div contenteditable>draft</div>")
    assert page.run("await gad.type('div', 'final'); document.querySelector('div').textContent").value == "final"


def test_keys(page: Runs, site: Site) -> None:
    opened(page, site, """<input value=abc autofocus><script>keys = [];
        onkeydown = e => keys.push((e.ctrlKey ? 'C-' : '') + e.key)</script>""")  # fmt: skip
    script = "for (const k of ['backspace', 'ctrl+a', '+', 'Esc']) await gad.press(k);"
    done = page.run(f"await gad.press('End', 'input'); {script} [document.querySelector('input').value, keys]")
    assert done.value == ["+", ["End", "Backspace", "C-Control", "C-a", "+", "Escape"]]
    assert "Unknown key" in page.run("await gad.press('Nokey')").error


def test_selecting_by_text_or_value(page: Runs, site: Site, quick: None) -> None:
    opened(page, site, """<select onchange="document.title = value"><option>red<option value=g>green</select>
        <select multiple><option>1<option>2<option>3</select><p>not a list</p>""")  # fmt: skip
    assert page.run("await gad.select('select', 'green'); document.title").value == "g"
    assert page.run("await gad.select('select', 'red'); document.title").value == "red"
    chosen = "[...document.querySelector('[multiple]').selectedOptions].map(o => o.text)"
    assert page.run(f"await gad.select('[multiple]', 1, '3'); {chosen}").value == ["1", "3"]
    assert "there are 'red', 'green'" in page.run("await gad.select('select', 'blue')").error
    assert "it is no <select>" in page.run("await gad.select('p', 'blue')").error


def test_hovering_opens_a_menu(page: Runs, site: Site) -> None:
    opened(
        page, site, "<style>ul{display:none} nav:hover ul{display:block}</style><nav>menu<ul><li>hidden item</ul></nav>"
    )
    done = page.watch("await gad.hover('nav')")
    assert "hidden item" in text_of(done.after) and "hidden item" not in text_of(done.before)


def test_dragging_by_html5_and_by_pointer(page: Runs, site: Site) -> None:
    opened(page, site, """<style>div{position:absolute;width:80px;height:80px}</style>
        <div id=card draggable=true>card</div><div id=bin style="left:300px">bin</div>
        <div id=knob style="top:200px">knob</div><div id=goal style="top:200px;left:300px">goal</div><script>
        card.ondragstart = e => e.dataTransfer.setData('text/plain', 'card');
        bin.ondragover = e => e.preventDefault();
        bin.ondrop = e => { document.title = 'dropped ' + e.dataTransfer.getData('text/plain') };
        moves = 0;
        knob.onpointerdown = e => { knob.setPointerCapture(e.pointerId);
            knob.onpointermove = m => { moves++; knob.style.left = m.clientX - 40 + 'px' } };
        knob.onpointerup = () => { knob.onpointermove = null };
    </script>""")  # fmt: skip
    assert page.run("await gad.drag('#card', '#bin'); document.title").value == "dropped card"
    left, moves = page.run("await gad.drag('#knob', '#goal'); [knob.offsetLeft, moves]").value
    assert left == 300 and moves > 2


def test_going_and_coming_back(page: Runs, site: Site) -> None:
    site.pages["/two"] = "<p>second page</p>"
    opened(page, site, "<p>first page</p>")
    done = page.watch("await gad.goto('/two')")
    assert text_of(done.after) == "second page" and done.moved and done.error == ""
    done = page.watch("await gad.back()")
    assert text_of(done.after) == "first page" and done.moved
    assert page.run("await gad.goto('#part'); location.hash").value == "#part"
    with Site() as gone:
        closed = gone.url()
    done = page.watch(f"await gad.goto('{closed}')")
    assert done.error.startswith(f"gad.goto: {closed} could not be opened: the host refuses the connection")


def test_there_is_nothing_to_go_back_to(loop: Loop, running: Running, tmp_path: Path) -> None:
    with runs(loop, running, tmp_path) as fresh:
        assert "there is no page before about:blank" in fresh.run("await gad.back()").error


def test_an_element_itself(page: Runs, site: Site) -> None:
    site.pages["/frame"] = "<button>inner</button>"
    opened(page, site, "<button>outer</button><iframe src=/frame></iframe>")
    assert page.run(f"(await gad.el({page.ref('outer')})).tagName").value == "BUTTON"
    assert page.run("(await gad.el('button')) === document.querySelector('button')").value is True
    assert "it is in another frame" in page.run(f"await gad.el({page.ref('inner')})").error


def test_a_typeahead_answers_before_the_page_is_shown(page: Runs, site: Site) -> None:
    def answer(asked: Asked) -> Served:
        return Served(asked.path.partition("q=")[2] + " pie")

    site.pages["/find"] = answer
    opened(page, site, """<input><ul></ul><script>
        let timer;
        document.querySelector('input').oninput = e => { clearTimeout(timer); timer = setTimeout(async () => {
            document.querySelector('ul').innerHTML = '<li>' + await (await fetch('/find?q=' + e.target.value)).text()
        }, 300) };
    </script>""")  # fmt: skip
    assert "apple pie" in text_of(page.watch("await gad.type('input', 'apple')").after)


def test_enter_sends_a_form(page: Runs, site: Site) -> None:
    def answer(asked: Asked) -> Served:
        return Served(f"<p>you asked {asked.path}</p>")

    site.pages["/ask"] = answer
    opened(page, site, "<form action=/ask><input name=q></form>")
    done = page.watch("await gad.type('input', 'x'); await gad.press('Enter', 'input'); await new Promise(() => {})")
    assert text_of(done.after) == "you asked /ask?q=x" and done.error == ""


# -- where elements are --------------------------------------------------------------------------


def test_refs_in_frames_of_other_sites(page: Runs, site: Site) -> None:
    site.pages["/frame"] = "<button onclick='this.textContent = \"done\"'>inside</button>"
    opened(page, site, f"<iframe src='{site.url('/frame', 'b.localhost')}'></iframe>")
    done = page.watch(f"await gad.click({page.ref('inside')})")
    assert "done" in text_of(done.after)


def test_shadow_roots(page: Runs, site: Site) -> None:
    opened(page, site, """<div></div><script>
        document.querySelector('div').attachShadow({mode: 'open'}).innerHTML =
            '<button onclick="this.textContent = 1 + +this.textContent">7</button>'</script>""")  # fmt: skip
    assert "8" in text_of(page.watch(f"await gad.click({page.ref('7')})").after)
    assert "9" in text_of(page.watch("await gad.click('div button')").after)


def test_a_ref_of_a_page_before_says_so(page: Runs, site: Site) -> None:
    opened(page, site, "<button>old</button>")
    ref = page.ref("old")
    opened(page, site, "<button>new</button>")
    assert (
        f"there is no element {ref} on the page now: look again with web_scan"
        in page.run(f"await gad.click({ref})").error
    )


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
    opened(page, site, html)
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
    opened(page, site, "<p>text</p>")
    assert error in page.run(f"await {call}").error


def test_a_script_can_catch_what_goes_wrong(page: Runs, site: Site, quick: None) -> None:
    opened(page, site, "<p>text</p>")
    done = page.run("try { await gad.click('#none') } catch (e) { 'caught ' + e.message }")
    assert done.value.startswith("caught gad.click: the selector '#none' finds nothing")


def test_calls_that_are_not_awaited_are_done_and_their_errors_told(page: Runs, site: Site, quick: None) -> None:
    opened(
        page,
        site,
        "<input><button onclick='document.title += value + document.querySelector(\"input\").value'>b</button>",
    )
    done = page.watch("gad.type('input', 'x'); gad.click('button'); 'sent'")
    assert done.value == "sent" and done.error == "" and page.run("document.title").value == "x"
    assert page.watch("gad.click('#none'); 1").error.startswith("gad.click: the selector")


def test_a_click_is_the_last_value(page: Runs, site: Site) -> None:
    opened(page, site, "<button onclick='document.title = 1'>b</button>")
    done = page.run("gad.click('button')")
    assert (done.error, done.returned) == ("", False) and page.run("document.title").value == "1"


# -- files ---------------------------------------------------------------------------------------


def test_uploads_to_an_input_and_to_a_button_that_opens_a_chooser(page: Runs, site: Site, quick: None) -> None:
    (page.cwd / "a.txt").write_text("hello")
    (page.cwd / "b.txt").write_text("there")
    opened(page, site, """<input type=file multiple><button>choose</button><p>text</p><script>
        document.querySelector('button').onclick = () => {
            const hidden = document.createElement('input');
            hidden.type = 'file';
            hidden.onchange = async () => { document.title = await hidden.files[0].text() };
            hidden.click();
        }</script>""")  # fmt: skip
    names = "[...document.querySelector('input').files].map(f => f.name)"
    assert page.run(f"await gad.upload('input', 'a.txt', 'b.txt'); {names}").value == ["a.txt", "b.txt"]
    path = str(page.cwd / "b.txt")
    done = page.watch(f"await gad.upload({page.ref('choose')}, '{path}')")
    assert done.error == "" and page.run("document.title").value == "there"
    assert "there is no file" in page.run("await gad.upload('input', 'c.txt')").error
    assert "it opens no file chooser" in page.run("await gad.upload('p', 'a.txt')").error


def test_the_path_of_an_upload_must_stand_in_the_script(page: Runs, site: Site) -> None:
    (page.cwd / "secret.txt").write_text("secret")
    opened(page, site, "<input type=file><script>path = 'secret' + '.txt'</script>")
    done = page.run("await gad.upload('input', path)")
    assert "the path must stand in the script as it is" in done.error
    assert page.run("document.querySelector('input').files.length").value == 0


def test_which_files_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    cwd = str(tmp_path)
    assert checked_file("a.txt", cwd, "gad.upload(1, 'a.txt')") == str(tmp_path / "a.txt")
    assert checked_file(f"{cwd}/a.txt", "/", f'gad.upload(1, "{cwd}/a.txt")') == str(tmp_path / "a.txt")
    for path, script in [("a.txt", "a.txt"), ("", "''"), (".", "'.'"), ("none", "'none'"), ("a.txt", "'x/a.txt'")]:
        with pytest.raises(BrowserError):
            checked_file(path, cwd, script)


@pytest.mark.parametrize(
    ("url", "script", "address"),
    [
        ("/a", "", "http://h.example/a"),
        ("?q=1", "", "http://h.example/dir/page?q=1"),
        ("other.example/x", "", "https://other.example/x"),
        ("http://other.example", "", "http://other.example"),
        ("about:blank", "", "about:blank"),
        ("file:///etc/hosts", "gad.goto('file:///etc/hosts')", "file:///etc/hosts"),
    ],
)
def test_addresses_that_may_be_gone_to(url: str, script: str, address: str) -> None:
    assert checked_address(url, "http://h.example/dir/page", script) == address


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/hosts",
        "data:text/html,x",
        "chrome://version",
        "java\tscript:alert(1)",
        " devtools://x",
        "",
        "about:version",
    ],
)
def test_addresses_that_may_not_be_gone_to(url: str) -> None:
    with pytest.raises(BrowserError):
        checked_address(url, "http://h.example/", f"gad.goto(there) // {url}/more")


def test_reasons_from_playwright_s_log() -> None:
    said = "Locator.click: Timeout 500ms exceeded.\nCall log:\n  - waiting for locator\n    - locator resolved to <b>\n"
    assert reason(said) == "the page did not react in time"
    assert reason(said + "      - element is not stable\n    - waiting 20ms") == "it does not stop moving"
    assert reason("Locator.click: Timeout 500ms exceeded.\nCall log:\n  - waiting for locator('x')").startswith(
        "it is no more"
    )


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
    opened(page, site, SPY)
    done = page.run("window.decoy = 0; await gad.click('button'); await gad.press('Tab'); document.title")
    assert (done.error, done.value) == ("", "true")
    assert page.run("found").value == ["decoy"]  # so it has looked


def test_the_page_keeps_a_gad_of_its_own(page: Runs, site: Site) -> None:
    opened(page, site, "<script>var gad = {mine: 1}</script><button onclick='document.title = gad.mine'>b</button>")
    assert page.run("await gad.click('button'); [document.title, typeof gad.mine]").value == ["1", "undefined"]
    assert page.run("window.gad").value == {"mine": 1}


def test_the_helper_is_of_no_use_when_the_script_has_ended(page: Runs, site: Site) -> None:
    opened(page, site, "<button onclick='document.title = 1'>b</button>")
    page.run("window.kept = gad; 1")
    page.run("window.late = kept.click('button').catch(e => e.message); 1")
    assert page.run("await late").value == "gad.click: the script has ended"
    assert page.run("document.title").value == ""


def test_a_script_makes_a_thousand_calls_at_most(page: Runs, site: Site) -> None:
    opened(page, site, "<p>text</p>")
    done = page.run("const calls = []; for (let i = 0; i < 1001; i++) calls.push(gad.hover().catch(e => e.message));"
                    "(await Promise.all(calls)).slice(-2)")  # fmt: skip
    assert done.value == ["gad.hover: it takes 1 arguments", "gad.hover: more than 1000 calls in one script"]


def test_a_call_in_a_page_that_is_slow_to_leave(page: Runs, site: Site) -> None:
    come = threading.Event()
    site.pages["/slow"] = Served("<p>slow page</p>", wait=come)
    opened(page, site, "<a href=/slow>go</a>")
    threading.Timer(0.7, come.set).start()
    done = page.watch("await gad.click('a'); await gad.click('a'); 1")
    assert text_of(done.after) == "slow page" and done.moved
