"""The helper `gad` in scripts: trusted input to elements by ref or selector, and what no page gets from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.browser.actions import checked_address, checked_file, reason
from gad.browser.chromium import Running
from gad.errors import BrowserError
from tests.script_runs import Runs, runs, text_of
from tests.sites import Asked, Loop, Served, Site


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as made:
        yield made


# -- input ---------------------------------------------------------------------------------------


def test_clicks_are_trusted(page: Runs, site: Site) -> None:
    page.show(site, "<button onclick='document.title = event.isTrusted'>press</button>")
    assert page.run(f"await gad.click({page.ref('press')}); document.title").value == "true"
    assert page.run("document.title = ''; await gad.click('button'); document.title").value == "true"


def test_typing_replaces_what_is_there_key_by_key(page: Runs, site: Site) -> None:
    page.show(site, """<input placeholder=name value=old onkeydown="keys += event.key"><script>keys = ''</script>
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
    page.show(site, f"<input type={kind}>")
    assert page.run(f"await gad.type('input', '{value}'); document.querySelector('input').value").value == value


def test_typing_into_what_is_editable(page: Runs, site: Site) -> None:
    page.show(site, "<div contenteditable>draft</div>")
    assert page.run("await gad.type('div', 'final'); document.querySelector('div').textContent").value == "final"


def test_keys(page: Runs, site: Site) -> None:
    page.show(site, """<input value=abc autofocus><script>keys = [];
        onkeydown = e => keys.push((e.ctrlKey ? 'C-' : '') + e.key)</script>""")  # fmt: skip
    script = "for (const k of ['backspace', 'ctrl+a', '+', 'Esc']) await gad.press(k);"
    done = page.run(f"await gad.press('End', 'input'); {script} [document.querySelector('input').value, keys]")
    assert done.value == ["+", ["End", "Backspace", "C-Control", "C-a", "+", "Escape"]]
    assert "Unknown key" in page.run("await gad.press('Nokey')").error


def test_selecting_by_text_or_value(page: Runs, site: Site, quick: None) -> None:
    page.show(site, """<select onchange="document.title = value"><option>red<option value=g>green</select>
        <select multiple><option>1<option>2<option>3</select><p>not a list</p>""")  # fmt: skip
    assert page.run("await gad.select('select', 'green'); document.title").value == "g"
    assert page.run("await gad.select('select', 'red'); document.title").value == "red"
    chosen = "[...document.querySelector('[multiple]').selectedOptions].map(o => o.text)"
    assert page.run(f"await gad.select('[multiple]', 1, '3'); {chosen}").value == ["1", "3"]
    assert "there are 'red', 'green'" in page.run("await gad.select('select', 'blue')").error
    assert "it is no <select>" in page.run("await gad.select('p', 'blue')").error


def test_hovering_opens_a_menu(page: Runs, site: Site) -> None:
    page.show(
        site, "<style>ul{display:none} nav:hover ul{display:block}</style><nav>menu<ul><li>hidden item</ul></nav>"
    )
    done = page.watch("await gad.hover('nav')")
    assert "hidden item" in text_of(done.after) and "hidden item" not in text_of(done.before)


def test_dragging_by_html5_and_by_pointer(page: Runs, site: Site) -> None:
    page.show(site, """<style>div{position:absolute;width:80px;height:80px}</style>
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
    page.show(site, "<p>first page</p>")
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
    page.show(site, "<button>outer</button><iframe src=/frame></iframe>")
    assert page.run(f"(await gad.el({page.ref('outer')})).tagName").value == "BUTTON"
    assert page.run("(await gad.el('button')) === document.querySelector('button')").value is True
    assert "it is in another frame" in page.run(f"await gad.el({page.ref('inner')})").error


def test_a_typeahead_answers_before_the_page_is_shown(page: Runs, site: Site) -> None:
    def answer(asked: Asked) -> Served:
        return Served(asked.path.partition("q=")[2] + " pie")

    site.pages["/find"] = answer
    page.show(site, """<input><ul></ul><script>
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
    page.show(site, "<form action=/ask><input name=q></form>")
    done = page.watch("await gad.type('input', 'x'); await gad.press('Enter', 'input'); await new Promise(() => {})")
    assert text_of(done.after) == "you asked /ask?q=x" and done.error == ""


# -- where elements are --------------------------------------------------------------------------


def test_refs_in_frames_of_other_sites(page: Runs, site: Site) -> None:
    site.pages["/frame"] = "<button onclick='this.textContent = \"done\"'>inside</button>"
    page.show(site, f"<iframe src='{site.url('/frame', 'b.localhost')}'></iframe>")
    done = page.watch(f"await gad.click({page.ref('inside')})")
    assert "done" in text_of(done.after)


def test_shadow_roots(page: Runs, site: Site) -> None:
    page.show(site, """<div></div><script>
        document.querySelector('div').attachShadow({mode: 'open'}).innerHTML =
            '<button onclick="this.textContent = 1 + +this.textContent">7</button>'</script>""")  # fmt: skip
    assert "8" in text_of(page.watch(f"await gad.click({page.ref('7')})").after)
    assert "9" in text_of(page.watch("await gad.click('div button')").after)


def test_a_ref_of_a_page_before_says_so(page: Runs, site: Site) -> None:
    page.show(site, "<button>old</button>")
    ref = page.ref("old")
    page.show(site, "<button>new</button>")
    assert (
        f"there is no element {ref} on the page now: look again with web_scan"
        in page.run(f"await gad.click({ref})").error
    )


# -- files ---------------------------------------------------------------------------------------


def test_uploads_to_an_input_and_to_a_button_that_opens_a_chooser(page: Runs, site: Site, quick: None) -> None:
    (page.cwd / "a.txt").write_text("hello")
    (page.cwd / "b.txt").write_text("there")
    page.show(site, """<input type=file multiple><button>choose</button><p>text</p><script>
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
    page.show(site, "<input type=file><script>path = 'secret' + '.txt'</script>")
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
