"""What the eyes tell of controls: names, states and values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gad.browser import eyes
from tests.looking import Eyes, controls, drawn, open_eyes, text_of


@pytest.fixture(scope="module")
def eye() -> Iterator[Eyes]:
    with open_eyes() as eye:
        yield eye


INPUTS = {
    "text": ("x", "value=x"), "search": ("x", "value=x"), "tel": ("1", "value=1"), "url": ("http://a", "value=http://a"),
    "email": ("a@b.c", "value=a@b.c"), "number": ("4", "value=4"), "date": ("2026-01-02", "value=2026-01-02"),
    "time": ("10:20", "value=10:20"), "month": ("2026-01", "value=2026-01"), "week": ("2026-W02", "value=2026-W02"),
    "datetime-local": ("2026-01-02T10:20", "value=2026-01-02T10:20"), "color": ("#ff0000", "value=#ff0000"),
    "range": ("30", "value=30"), "password": ("secret", "value=•••"),
}  # fmt: skip


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_tell_what_they_hold_now(eye: Eyes, kind: str) -> None:
    given, told = INPUTS[kind]
    eye.open(f"<label for=i>Name</label> <input id=i type={kind}>")
    eye.run(f"document.getElementById('i').value = '{given}'")
    page = eye.look().page
    assert drawn(page.root) == f"(input[type={kind} label=Name {told}])"
    assert "secret" not in repr(page)


def test_hidden_inputs_are_gone_and_buttons_say_what_is_on_them(eye: Eyes) -> None:
    page = eye.see(
        "<form><input type=hidden value=h><input type=submit> <input type=reset> <input type=button value=Do> "
        "<input type=image alt=Go width=20 height=20> <button>Send <b>it</b></button></form>"
    )
    assert (
        drawn(page.root) == "(form(button(Submit)| |button(Reset)| |button(Do)| |button[label=Go]| |button(Send it)))"
    )


def test_states_of_controls(eye: Eyes) -> None:
    eye.open(
        "<input type=checkbox id=a><input type=checkbox id=b checked><input type=checkbox id=c>"
        "<input type=radio id=r checked>"
        "<fieldset disabled><legend>Group</legend><input id=d readonly required></fieldset>"
        "<button aria-expanded=false aria-pressed=true>M</button><a href=x aria-current=page>Here</a>"
        "<div role=tab aria-selected=true>Tab</div><div role=switch aria-checked=false>Sw</div>"
        "<input id=f aria-invalid=true>"
        "<input type=file multiple><details><summary>Sum</summary></details><details open><summary>Open"
        "</summary>x</details>"
    )
    eye.run("c.indeterminate = true; a.checked = true; f.focus()")
    states = [node.state for node in controls(eye.look().page)]
    assert states == [
        ("checked",), ("checked",), ("mixed",), ("checked",), ("disabled", "readonly", "required"),
        ("collapsed", "pressed"), ("current",), ("selected",), ("unchecked",), ("invalid", "focused"), ("multiple",),
        ("collapsed",), ("expanded",),
    ]  # fmt: skip


def test_names_come_from_labels_and_labels_are_not_told_twice(eye: Eyes) -> None:
    page = eye.see(
        "<p><label for=a>First name:</label> <input id=a></p>"
        "<p><label>Last name <input></label></p>"
        "<p><label><input type=checkbox> I accept the <a href=/t>terms</a></label></p>"
        "<p><span id=s>Street</span> <input aria-labelledby=s></p>"
        "<p><input aria-label=Zip placeholder=12345></p><p><input title=City></p>"
        "<p><label for=gone>No control</label></p>"
    )
    assert drawn(page.root) == (
        "((input[type=text label=First name:])|(input[type=text label=Last name])"
        "|(input[type=checkbox label=I accept the terms state=unchecked]|link(terms))"
        "|(Street |input[type=text label=Street])|(input[type=text label=Zip hint=12345])|(input[type=text label=City])"
        "|(No control))"
    )


def test_names_of_links_and_buttons_without_text(eye: Eyes) -> None:
    page = eye.see(
        "<a href=/a><img alt=Logo width=20 height=20></a><a href=/b aria-label=Bee>"
        "<i style='display:inline-block;width:9px;height:9px'></i></a>"
        "<a href=/c>Read <span>more</span></a><a href=/d aria-label='Read more about D'>Read more</a>"
        "<a href=/e aria-label='Read'>Read more</a>"
        "<button><svg width=9 height=9><title>Close</title></svg></button>"
        "<button><span style='position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0,0,0,0)'>Menu"
        "</span>≡</button>"
        "<button><span style='position:absolute;width:1px;height:1px;overflow:hidden;clip:rect(0,0,0,0)'>Menu"
        "</span><i>&nbsp;</i></button>"
        "<a href=/files/report-2026.pdf?x=1><img src=x width=20 height=20></a>"
        "<style>.p::before{content:'Play'}</style><button class=p></button>"
        "<button class='btn-next'></button>"
    )
    assert [drawn(node) for node in controls(page)] == [
        "link(image[label=Logo])", "link[label=Bee]", "link(Read more)", "link[label=Read more about D](Read more)",
        "link(Read more)", "button(image[label=Close])", "button(≡)", "button[label=Menu]",
        "link[label=report-2026.pdf]",
        "button(Play)", "button[label=(btn-next)]",
    ]  # fmt: skip


def test_native_boxes_that_are_hidden_below_styled_labels_can_be_acted_on(eye: Eyes) -> None:
    hidden = "position:absolute;opacity:0"
    page = eye.see(
        f"<p><input type=checkbox id=a style='{hidden}'><label for=a>Transparent</label></p>"
        "<p><input type=checkbox id=b style='display:none' checked><label for=b>Gone</label></p>"
        "<p><label><input type=radio style='position:absolute;clip:rect(0,0,0,0)'>Clipped</label></p>"
        "<p><label style='padding:9px'>Choose a file<input type=file style='display:none'></label></p>"
        "<div style='position:relative;width:100px;height:30px'>Upload"
        "<input type=file style='position:absolute;inset:0;opacity:0'></div>"
        "<p><input type=checkbox style='display:none'>no label</p>"
    )
    assert drawn(page.root) == (
        "((input[type=checkbox label=Transparent state=unchecked])|(input[type=checkbox label=Gone state=checked])"
        "|(input[type=radio label=Clipped state=unchecked])|(input[type=file label=Choose a file])"
        "|(Upload|input[type=file label=Upload])|(no label))"
    )

    async def toggle() -> object:
        for node in controls(page)[:2]:
            await (await eyes.find(eye.tab, node.ref)).click()
        return await eye.tab.evaluate("[a.checked, b.checked]")

    assert eye.loop.run(toggle()) == [True, False]


def test_selects(eye: Eyes) -> None:
    many = "".join(f"<option{' selected' if i == 30 else ''}>o{i}</option>" for i in range(40))
    page = eye.see(
        "<select><option>One<option selected>Two</select><select multiple><option selected>A<option selected>B"
        "<option>C</select>"
        f"<select>{many}</select>"
    )
    one, several, long = controls(page)
    assert (one.options, one.value) == (("One", "Two"), "Two")
    assert (several.value, several.state) == ("A, B", ("multiple",))
    assert long.options == (*(f"o{i}" for i in range(15)), "o30", "(24 more)")
    assert long.value == "o30"


def test_text_areas_and_editable_elements(eye: Eyes) -> None:
    eye.open(
        "<textarea id=t placeholder=Say>old</textarea><div contenteditable aria-label=Note><p>One</p><p>Two <b>b"
        "</b></p></div>"
        "<div contenteditable=false>No</div><div contenteditable data-placeholder='Write'></div>"
        "<style>div{min-height:20px}</style>"
    )
    eye.run("t.value = 'new\\nline'")
    assert drawn(eye.look().page.root) == (
        "((textarea[value=new\nline hint=Say])|editable[label=Note]((One)|(Two b))|(No)|(editable[hint=Write]))"
    )


def test_files_that_were_chosen_are_named(eye: Eyes) -> None:
    eye.open("<input type=file id=f>")
    eye.loop.run(eye.tab.set_input_files("#f", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x"}))
    assert drawn(eye.look().page.root) == "(input[type=file value=a.txt])"


def test_roles_and_clickable_elements(eye: Eyes) -> None:
    roles = ["checkbox", "radio", "switch", "tab", "menuitem", "option", "combobox", "slider", "treeitem"]
    page = eye.see(
        "".join(f"<div role={role} tabindex=0>{role}</div>" for role in roles)
        + "<div onclick='1'>On</div><div style='cursor:pointer'>Looks</div><div style='cursor:pointer'>"
        "<a href=x>Only the link</a></div>"
        "<div style='cursor:pointer'><span style='cursor:pointer'>Once</span></div><div tabindex=0>Plain</div>"
        "<a class=js>Script</a> <a name=here>Target</a>"
    )
    found = [(node.kind, node.type, text_of(node)) for node in controls(page)]
    assert found == [("control", role, role) for role in roles] + [
        ("control", "clickable", "On"), ("control", "clickable", "Looks"), ("link", "", "Only the link"),
        ("control", "clickable", "Once"),
        ("control", "clickable", "Script"),
    ]  # fmt: skip


def test_controls_in_controls_follow_them(eye: Eyes) -> None:
    page = eye.see(
        "<a href=/x style='display:block'><h3>Title</h3><p>Summary</p><button>Save</button></a>"
        "<ul role=tree><li role=treeitem>Root<ul><li role=treeitem>Child</li></ul></li></ul><h2><a href=y>Two</a></h2>"
        "<a href=z><h3>Three</h3></a><div style='cursor:pointer'><p>A <b>card</b></p><p>of text</p></div>"
        f"<div style='cursor:pointer'>{'<p>An article, and no control.</p>' * 30}</div>"
    )
    start = (
        "((link(Title|break|Summary)| |button(Save))|list(item(control[type=treeitem](Root)| |control[type=treeitem]"
        "(Child)))|h2(link(Two))|h3(link(Three))|(control[type=clickable](A card|break|of text))|(An article"
    )
    assert drawn(page.root)[: len(start)] == start
    assert len(controls(page)) == 7


def test_rows_that_can_be_clicked_keep_their_cells(eye: Eyes) -> None:
    page = eye.see(
        "<table><tr><th>A<th>B</tr><tr style='cursor:pointer'><td>1<td>2</tr>"
        "<tr onclick='1'><td>3<td><a href=x>4</a></tr></table>"
    )
    head = "row(cell[state=head](A)|cell[state=head](B))"
    assert (
        drawn(page.root) == f"(table({head}|row(cell(control[type=clickable](1))|cell(2))|row(cell(3)|cell(link(4)))))"
    )


def test_content_that_fades_in_when_it_is_scrolled_to(eye: Eyes) -> None:
    page = eye.see(
        "<div style='height:2000px'>Top</div><div style='opacity:0;transition:opacity 1s'>Later</div>"
        "<div style='opacity:0'>Never</div>"
    )
    assert text_of(page.root) == "Top\nLater"


def test_progress_meters_and_media(eye: Eyes) -> None:
    page = eye.see(
        "<p><progress value=.25></progress> <meter value=3 max=9></meter></p>"
        "<video controls aria-label=Film width=200></video>"
        "<canvas width=300 height=200 aria-label=Chart>no</canvas>"
    )
    assert [drawn(node) for node in controls(page)] == [
        "control[type=progress value=25%]",
        "control[type=meter value=3]",
        "control[type=video label=Film]",
        "control[type=canvas label=Chart]",
    ]


@pytest.mark.parametrize(
    ("html", "told"),
    [
        ("<a href=/x/page.html><img src=x style='float:left;width:50px;height:50px'></a>", "(link[label=page.html])"),
        ("<a href=/x/page.html style='display:contents'><img src=x style='width:50px;height:50px'></a>",
         "(link[label=page.html])"),
        ("<a href=/x style='position:absolute;width:1px;height:1px;overflow:hidden'><b>Skip</b></a><p>x</p>", "(x)"),
        ("<img usemap='#m' src=x width=100 height=50><map name=m><area href=/a alt=Left coords='0,0,50,50'>"
         "<area href=/b/right.html coords='50,0,100,50'></map>", "(link[label=Left]| |link[label=right.html])"),
        ("<label for=c>Name</label><x-in id=c></x-in><script>customElements.define('x-in', class extends HTMLElement {"
         "static formAssociated = true; constructor() { super(); "
         "this.attachShadow({mode: 'open'}).innerHTML = '<input>' }})</script>", "(Name|input[type=text])"),
        ("<div contenteditable>Text <button>B</button> <input value=v> <a href=/q>link</a></div>",
         "(editable(Text |button(B)| |input[type=text value=v]| |link(link)))"),
        ("<input list=d><datalist id=d><option value=One><option value=Two label=Zwei></datalist>",
         "(input[type=text options=One,Two])"),
        ("<select><option label=Shown>text</option><option style='display:none'>no</option></select>",
         "(select[value=Shown options=Shown])"),
        ("<select><option>Any<optgroup label=Fruit><option>Apple<option>Pear</optgroup>"
         "<optgroup label=Roots><option>Leek</optgroup></select>",
         "(select[value=Any options=Any,(Fruit),Apple,Pear,(Roots),Leek])"),
        ("<fieldset disabled><legend><input value=on></legend><button>no</button></fieldset>",
         "(group((input[type=text value=on])|button[state=disabled](no)))"),
        ("<label>Done <progress value=.5></progress></label>", "(control[type=progress label=Done value=50%])"),
        ("<div role=progressbar aria-valuenow=30>30 of 100</div>", "(control[type=progress value=30](30 of 100))"),
        ("<svg width=100 height=30><a href=/s><text x=1 y=20>Drawn</text></a></svg>", "(link(Drawn))"),
        ("<x-btn style='cursor:pointer;display:block'>Press</x-btn>", "(control[type=clickable](Press))"),
        ("<span role=button>Go</span> <span role=link>There</span>", "(button(Go)| |link(There))"),
        ("<audio></audio><audio controls></audio>", "(control[type=audio])"),
        ("<div style='cursor:pointer;width:30px;height:30px'><i class=icon-close></i></div>",
         "(control[type=clickable label=(icon-close)])"),
        ("<button id=save-as></button><button name=find></button><button><svg width=9 height=9><use href='#bin' />"
         "</svg></button>", "(button[label=(save-as)]|button[label=(find)]|button[label=(bin)])"),
    ],
)  # fmt: skip
def test_controls_of_uncommon_make(eye: Eyes, html: str, told: str) -> None:
    assert drawn(eye.see(html).root) == told
