"""file_read, file_patch and file_write: windows, encodings, exact bytes, whole writes."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.cut import mark
from gad.core.ports import Outcome, ToolContext
from gad.tools.file_patch import FilePatch
from gad.tools.file_read import FileRead
from gad.tools.file_write import FileWrite


def context(cwd: Path, limit: int = 20_000) -> ToolContext:
    return ToolContext("s", "c", str(cwd), str(cwd / "work"), lambda text: None, {"HOME": str(cwd / "home")}, limit)


def read(cwd: Path, path: str, limit: int = 20_000, **arguments: Any) -> Outcome:
    return asyncio.run(FileRead().run({"path": path, **arguments}, context(cwd, limit)))


def patch(cwd: Path, path: str, old: str, new: str) -> Outcome:
    return asyncio.run(FilePatch().run({"path": path, "old_content": old, "new_content": new}, context(cwd)))


def write(cwd: Path, path: str, content: str, mode: str = "overwrite") -> Outcome:
    return asyncio.run(FileWrite().run({"path": path, "content": content, "mode": mode}, context(cwd)))


def failed(outcome: Outcome, *reasons: str) -> None:
    assert outcome.status == "error", outcome
    for reason in reasons:
        assert reason in outcome.output


# file_read


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({}, "1|one\n2|two\n3|three 你好 🎉\n4|\n5|Four"),
        ({"start": 4}, "4|\n5|Four"),
        ({"start": 2, "count": 2}, "2|two\n3|three 你好 🎉\n[2 more lines; read on with start=4]"),
        ({"start": -7, "count": 1}, "1|one\n[4 more lines; read on with start=2]"),
        ({"keyword": "FOUR", "count": 3}, "4|\n5|Four"),
        ({"keyword": "你好", "count": 3}, "2|two\n3|three 你好 🎉\n4|\n[1 more lines; read on with start=5]"),
        ({"keyword": "o", "start": 2, "count": 1}, "2|two\n[3 more lines; read on with start=3]"),
    ],
)
def test_the_window_of_lines(tmp_path: Path, arguments: dict[str, Any], output: str) -> None:
    (tmp_path / "a.txt").write_bytes("one\ntwo\r\nthree 你好 🎉\n\nFour".encode())
    outcome = read(tmp_path, "a.txt", **arguments)
    assert (outcome.status, outcome.output, dict(outcome.meta)) == ("ok", output, {"lines": 5})


def test_windows_that_show_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\n")
    (tmp_path / "empty").write_text("")
    failed(read(tmp_path, "a", start=3), "the file has 2 lines")
    failed(read(tmp_path, "a", keyword="z"), "holds 'z'")
    failed(read(tmp_path, "a", keyword="x", start=2), "from 2 on")
    assert read(tmp_path, "empty").output == "(empty file)"


def test_keyword_shows_lines_before_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    lines = read(tmp_path, "a", keyword="LINE 500").output.splitlines()
    assert (lines[0], lines[-2], len(lines)) == ("480|line 480", "679|line 679", 201)
    assert read(tmp_path, "a", keyword="line", start=300).output.startswith("280|")


@pytest.mark.parametrize("limit", [400, 2_000, 20_000])
def test_long_lines_and_long_windows_are_cut_with_marks_that_lead_on(tmp_path: Path, limit: int) -> None:
    (tmp_path / "long").write_text("中" * 3000 + "\nshort\n")
    assert read(tmp_path, "long").output == "1|" + "中" * 1280 + "[+1,720 characters]\n2|short"
    (tmp_path / "wide").write_text("".join(f"{n}:" + "x" * 500 + "\n" for n in range(1, 101)))
    seen: list[str] = []
    start: int | None = 1
    while start is not None:
        output = read(tmp_path, "wide", limit, start=start).output
        assert len(output) <= limit
        *lines, last = output.splitlines()
        assert output.count("x") > limit * 0.6 or not last.startswith("[")
        start = int(last.rpartition("=")[2].rstrip("]")) if last.startswith("[") else None
        seen += lines if start is not None else [*lines, last]
    assert [line.split("|")[0] for line in seen] == [str(n) for n in range(1, 101)]


def test_even_a_small_limit_holds_and_shows_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(("中" * 5000 + "\n") * 300)
    for limit in (150, 700, 1400, 1500, 2000):
        output = read(tmp_path, "a", limit, start=200).output
        assert len(output) <= limit
        assert re.match(r"200\|中+\[\+\d,\d{3} characters\]\n", output)
        assert re.search(r"; read on with start=20\d\]\Z", output)


def test_a_file_larger_than_one_piece_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.tools.file_read._SAMPLE", 1001)  # splits a character
    (tmp_path / "big").write_text("".join(f"第{n}行\n" for n in range(1, 300_001)))
    outcome = read(tmp_path, "big", keyword="第299999行", count=3)
    assert outcome.output == "299998|第299998行\n299999|第299999行\n300000|第300000行"
    assert outcome.meta == {"lines": 300_000}


TEXTS = [
    ("gbk", "# 配置文件\nname = 测试\n"), ("gbk", "你好"), ("gbk", 'print("错误")\n'),
    ("gbk", "姓名,年龄\n张三,20\n"),
    ("gbk", "价格：￥100\n"), ("gbk", "# 中\nx = 1\n"), ("gbk", "联通"), ("gbk", "订单编号"), ("gbk", "打开文件失败\n"),
    ("gb18030", "表情 🎉 可以\n"),
    ("cp932", "日本語"), ("cp932", "設定ファイル\n"), ("cp932", "// 合計を計算する\nint f();\n"), ("cp932", "東京"),
    ("cp1252", "café"), ("cp1252", "Müller\n"), ("cp1252", "price: 5 €\n"), ("cp1252", "naïve résumé — “quoted”\n"),
    ("cp1252", "Größe = 5 # Übergröße\n"), ("cp1252", "25°C\n"), ("cp1252", "# author: José Núñez\n"),
    ("big5", "設定檔案\nname = 測試\n"), ("cp949", "안녕하세요\n"), ("cp1251", "Привет, мир\n"),
    ("utf-8-sig", "有标记 🎉\n"), ("utf-16", "宽字符 🎉\nb\n"), ("utf-32", "宽\n"),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "text"), TEXTS)
def test_encodings_are_read_right(tmp_path: Path, codec: str, text: str) -> None:
    (tmp_path / "a").write_bytes(text.encode(codec))
    outcome = read(tmp_path, "a")
    assert outcome.output == "\n".join(f"{n}|{line}" for n, line in enumerate(text.splitlines(), 1))
    assert outcome.meta["encoding"].startswith(codec.removesuffix("-sig"))


def test_big_endian_and_damaged_text(tmp_path: Path) -> None:
    (tmp_path / "be").write_bytes(b"\xfe\xff" + "大端\r\nb".encode("utf-16-be"))
    assert read(tmp_path, "be").output == "1|大端\n2|b"
    (tmp_path / "cut").write_bytes("你好世界".encode()[:-1])
    outcome = read(tmp_path, "cut")
    assert outcome.output == "1|你好世\ufffd"
    assert outcome.meta["encoding"] == "utf-8"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG image, 108 bytes"),
        (b"\x7fELF" + bytes(10), "ELF program"),
        (b"%PDF-1.7\n", "PDF document"),
        (bytes(range(256)), "binary data, 256 bytes"),
    ],
)
def test_binary_files_are_named(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "b").write_bytes(data)
    failed(read(tmp_path, "b"), "is not text", reason)
    failed(patch(tmp_path, "b", "a", "b"), "is not text", reason)


def test_missing_paths_get_a_suggestion_and_directories_a_listing(tmp_path: Path) -> None:
    deep = tmp_path / "src" / "pkg"
    deep.mkdir(parents=True)
    (deep / "config.yaml").write_text("a")
    (tmp_path / "README.md").write_text("a")
    failed(read(tmp_path, "readme.md"), "no such file", "did you mean README.md?")
    failed(read(tmp_path, "config.yaml"), "did you mean src/pkg/config.yaml?")
    failed(read(tmp_path, "src/pkg/confg.yaml"), "did you mean src/pkg/config.yaml?")
    failed(read(tmp_path, "README.md/x"), "no such file")
    unlike = read(tmp_path, "zzz")
    failed(unlike, "no such file")
    assert "did you mean" not in unlike.output
    failed(read(tmp_path, "."), "is a directory", "README.md  src/")


def test_pipes_and_odd_paths_neither_block_nor_crash(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("loop", tmp_path / "loop")
    failed(read(tmp_path, "pipe"), "not a regular file")
    failed(patch(tmp_path, "pipe", "a", "b"), "not a regular file")
    failed(write(tmp_path, "pipe", "a"), "not a regular file")
    failed(read(tmp_path, "loop"), "symbolic links")
    failed(read(tmp_path, "a\0b"), "NUL")
    failed(read(tmp_path, " "), "empty")


def test_relative_paths_start_in_cwd_and_the_tilde_is_the_childs_home(tmp_path: Path) -> None:
    assert write(tmp_path, "~/deep/a", "home").status == "ok"
    assert (tmp_path / "home" / "deep" / "a").read_text() == "home"
    assert read(tmp_path, "~/deep/a").output == "1|home"
    assert read(tmp_path, "home/../home/deep/a").output == "1|home"


# file_patch


def test_none_or_several_matches_change_nothing_and_say_where_to_look(tmp_path: Path) -> None:
    before = "def f():\n    return 1\n\ndef g():\n    return 1\n    return 二\n"
    (tmp_path / "a.py").write_text(before)
    failed(patch(tmp_path, "a.py", "    return 1\n", "x"), "occurs 2 times, at lines 2, 5")
    failed(patch(tmp_path, "a.py", "def f(x):", "x"), "the nearest is line 1: 'def f():'")
    failed(patch(tmp_path, "a.py", "\treturn 二", "x"), "line 6 differs only in white space: '    return 二'")
    failed(patch(tmp_path, "a.py", "def g():\n    return 2\n", "x"), "from line 4", "line 5", "'    return 1'")
    failed(patch(tmp_path, "a.py", "", "x"), "empty")
    failed(patch(tmp_path, "a.py", "def f", "def f"), "the same")
    (tmp_path / "b").write_text("aaa")
    failed(patch(tmp_path, "b", "aa", "x"), "occurs 2 times")  # overlapping matches are two places
    assert (tmp_path / "a.py").read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["a.py", "b"]


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "b\nc", "1\n2\n3", b"a\r\n1\r\n2\r\n3\r\nc\r\n".replace(b"3\r\nc", b"3")),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\nb\r\nc\nd\n", "c\n", "x\ny\n", b"a\nb\r\nx\ny\nd\n"),
        (b"a\nb\r\nc\nd\n", "b\n", "x\ny\n", b"a\nx\r\ny\r\nc\nd\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\r\n\r\nb", "\n\n", "\n", b"a\r\nb"),
        (b"a\rb\nc", "b", "x", b"a\rx\nc"),
        (b"abc", "b", "", b"ac"),
        ("\ufeff你好\r\n🎉\r\n".encode(), "🎉", "🚀\n再见", "\ufeff你好\r\n🚀\r\n再见\r\n".encode()),
        ("\ufeff你好\r\n🎉".encode("utf-16-le"), "好\n", "们\n\n", "\ufeff你们\r\n\r\n🎉".encode("utf-16-le")),
        (b"caf\xe9 \x81\x9d\nb\n", "b", "x", b"caf\xe9 \x81\x9d\nx\n"),
        (b"ok \xff\xfe \xe4\xbd\xa0\xe5\xa5\xbd\n", "ok", "no", b"no \xff\xfe \xe4\xbd\xa0\xe5\xa5\xbd\n"),
        # Two codes for one character: what is not patched keeps its own.
        ("設定です".encode("cp932") + b"\x87\x90 a\n", "a", "b", "設定です".encode("cp932") + b"\x87\x90 b\n"),
    ],
)  # fmt: skip
def test_every_other_byte_is_kept(tmp_path: Path, before: bytes, old: str, new: str, after: bytes) -> None:
    (tmp_path / "a").write_bytes(before)
    outcome = patch(tmp_path, "a", old, new)
    assert outcome.status == "ok", outcome
    assert (tmp_path / "a").read_bytes() == after


HANZI = st.characters(codec="gb2312", min_codepoint=0x4E00, max_codepoint=0x9FFF)
LINES = st.lists(
    st.tuples(st.text(HANZI | st.sampled_from("ab1 ,。（）"), max_size=12), st.sampled_from(["\n", "\r\n"])),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(above=LINES, below=LINES, old=st.text(HANZI, min_size=1, max_size=6), new=st.text(HANZI, max_size=6))
def test_gbk_files_keep_every_other_byte(
    above: list[tuple[str, str]], below: list[tuple[str, str]], old: str, new: str
) -> None:
    head = "".join(map("".join, above)) + "key_="
    tail = ";\r\n" + "".join(map("".join, below))
    old, new = f"key_={old};", f"key_={new}新;"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.txt")
        path.write_bytes((head + old[5:-1] + tail).encode("gbk"))
        if new == old:
            return
        outcome = patch(Path(directory), "a.txt", old, new)
        assert outcome.status == "ok", outcome
        assert path.read_bytes() == (head + new[5:-1] + tail).encode("gbk")


def test_the_mode_and_the_link_are_kept(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("#!/bin/sh\necho old\n")
    os.chmod(tmp_path / "real", 0o4751)
    os.symlink("real", tmp_path / "link")
    assert patch(tmp_path, "link", "old", "new").status == "ok"
    assert write(tmp_path, "link", "echo more\n", "append").status == "ok"
    assert os.readlink(tmp_path / "link") == "real"
    assert (tmp_path / "real").read_text() == "#!/bin/sh\necho new\necho more\n"
    assert stat.S_IMODE(os.stat(tmp_path / "real").st_mode) == 0o4751
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    failed(patch(tmp_path, "a", "old", "new"), "No space left")
    failed(write(tmp_path, "a", "new"), "No space left")
    failed(write(tmp_path, "b", "new"), "No space left")
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_change_by_somebody_else_meanwhile_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    real = os.fsync

    def slow(descriptor: int) -> None:
        path.write_text("theirs, old")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    failed(patch(tmp_path, "a", "old", "new"), "changed by somebody else")
    assert path.read_text() == "theirs, old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_cancelled_write_has_ended_when_the_cancellation_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()
    real = os.fsync

    def slow(descriptor: int) -> None:
        entered.set()
        assert release.wait(10)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)

    async def scenario() -> None:
        task = asyncio.create_task(FileWrite().run({"path": "a", "content": "x"}, context(tmp_path)))
        deadline = time.monotonic() + 10
        while not entered.is_set():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert os.listdir(tmp_path) == ["a"]

    asyncio.run(scenario())


def test_what_an_encoding_cannot_hold_is_refused(tmp_path: Path) -> None:
    before = "# 配置文件\nname = 测试\n".encode("gbk")
    (tmp_path / "a").write_bytes(before)
    failed(patch(tmp_path, "a", "测试", "🎉"), "gbk", "U+1F389", "UTF-8")
    failed(write(tmp_path, "a", "é🎉"), "gbk", "UTF-8")
    failed(write(tmp_path, "b", "\ud800"), "surrogate")
    assert (tmp_path / "a").read_bytes() == before
    assert os.listdir(tmp_path) == ["a"]


# cut marks

MARK = mark(9000, 19_000, "/w/code_run-1.txt")


def test_a_cut_mark_is_not_written_in_the_place_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    for mode in ("overwrite", "append", "prepend"):
        failed(write(tmp_path, "a", f"x\n{MARK}\ny\n", mode), "content holds a cut mark", "in /w/code_run-1.txt")
    failed(write(tmp_path, "b/c", MARK), "content holds a cut mark")
    failed(patch(tmp_path, "a", "two", MARK), "new_content holds a cut mark", "in full")
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
    assert os.listdir(tmp_path) == ["a"]


def test_a_cut_mark_that_the_file_holds_may_stay(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"one\n{MARK}\ntwo\n")
    assert patch(tmp_path, "log", f"one\n{MARK}", f"1\n{MARK}").status == "ok"
    assert patch(tmp_path, "log", "two", f"2 {MARK}").status == "ok"
    failed(patch(tmp_path, "log", "2", mark(1, 2, "")), "new_content holds a cut mark")
    assert write(tmp_path, "log", f"{MARK}\n").status == "ok"
    assert (tmp_path / "log").read_text() == f"{MARK}\n"
    assert write(tmp_path, "copy", "{{file:log:1:1}}").status == "ok"  # a reference copies what is there
    assert (tmp_path / "copy").read_text() == MARK


# references


def test_references_insert_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "gbk.txt").write_bytes("第一行\r\n第二行\r\n第三行\r\n".encode("gbk"))
    (tmp_path / "a").write_text("x\nHERE\ny\n")
    assert patch(tmp_path, "a", "HERE", "<{{file:gbk.txt:2:3}}>").status == "ok"
    assert (tmp_path / "a").read_text() == "x\n<第二行\n第三行>\ny\n"
    assert write(tmp_path, "new", "{{file:a:1:1}}\n{{file:gbk.txt:1:1}}\n{{file:x}} {{name}}\n").status == "ok"
    assert (tmp_path / "new").read_text() == "x\n第一行\n{{file:x}} {{name}}\n"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [("{{file:a:3:4}}", "lines 1 to 3"), ("{{file:a:0:1}}", "lines 1 to 3"), ("{{file:a:2:1}}", "lines 1 to 3"),
     ("{{file:aa.txt:1:1}}", "no such file")],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_is_an_error(tmp_path: Path, reference: str, reason: str) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    failed(write(tmp_path, "b", reference), reason)
    failed(patch(tmp_path, "a", "2", reference), reason)
    assert os.listdir(tmp_path) == ["a"]


# file_write


@pytest.mark.parametrize(
    ("before", "mode", "content", "after"),
    [
        (None, "overwrite", "你好 🎉\r\n", "你好 🎉\r\n".encode()),
        (None, "append", "a\n", b"a\n"),
        (b"old\n", "overwrite", "", b""),
        (b"old\r\nx\r\n", "overwrite", "a\nb\n", b"a\r\nb\r\n"),
        (b"a\n", "append", "b\r\n", b"a\nb\n"),
        (b"a", "append", "b", b"ab"),
        (b"b\r\n", "prepend", "a\n", b"a\r\nb\r\n"),
        ("\ufeffb\n".encode(), "prepend", "a\n", "\ufeffa\nb\n".encode()),
        ("\ufeffb\n".encode("utf-16-be"), "append", "你\n", "\ufeffb\n你\n".encode("utf-16-be")),
        ("设置文件\r\n".encode("gbk"), "append", "测试\n", "设置文件\r\n测试\r\n".encode("gbk")),
        ("设置文件\r\n".encode("gbk"), "overwrite", "测试\n", "测试\r\n".encode("gbk")),
        (b"\x89PNG" + bytes(9), "overwrite", "你\n", "你\n".encode()),
    ],
)
def test_writing_keeps_encoding_and_line_ends(
    tmp_path: Path, before: bytes | None, mode: str, content: str, after: bytes
) -> None:
    if before is not None:
        (tmp_path / "a").write_bytes(before)
        os.chmod(tmp_path / "a", 0o640)
    outcome = write(tmp_path, "a", content, mode)
    assert outcome.status == "ok", outcome
    assert (tmp_path / "a").read_bytes() == after
    assert os.listdir(tmp_path) == ["a"]
    if before is not None:
        assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_writing_makes_directories_and_reports_what_it_wrote(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        outcome = write(tmp_path, "x/y/z.txt", "a\n你")
    finally:
        os.umask(old)
    assert outcome.output == "wrote 2 lines, 5 bytes to a new file"
    assert stat.S_IMODE(os.stat(tmp_path / "x/y/z.txt").st_mode) == 0o640
    failed(write(tmp_path, "x/y", "a"), "is a directory")
    failed(write(tmp_path, "x/y/z.txt/a", "a"), "z.txt")
    (tmp_path / "png").write_bytes(b"\x89PNG" + bytes(9))
    failed(write(tmp_path, "png", "a", "append"), "is not text")
