"""Rules: which pattern matches what, in which order rules count, what a mistake in gad.yaml is told, and the fold."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.cli.compose import build_policy
from gad.cli.listing import _settings
from gad.config import load
from gad.core import globs
from gad.core.commands import ANY, UNKNOWN
from gad.core.messages import ToolResult, User
from gad.core.permission import ANSWERED_OTHERWISE, REFUSED, fingerprint
from gad.core.policy import CANDIDATES, Policy, Verdict, make_policy, parse_rule
from gad.core.records import Asked, Calling, Ended, Paused, Record, Resumed, Said, StopAsked, ToolFinished, ToolStarted
from gad.core.report import status_of
from gad.core.session import Session, replay
from gad.core.steps import AwaitReply, CallModel, Finish, RunTool
from gad.core.uses import Action, Place, host_of
from gad.errors import ConfigError, InvalidStep
from gad.home import make_home
from tests.histories import answer, begin, call
from tests.test_policy_code import GAD, PLACE, policy

NOW = 200.0
Rules = tuple[tuple[Action, str], ...]


def judged(tool: str, arguments: Mapping[str, Any], *rules: tuple[Action, str], roots: tuple[str, ...] = ()) -> Verdict:
    return policy(*rules, roots=roots).judge(tool, arguments, PLACE)


# -- patterns ------------------------------------------------------------------------------------

names = st.text(st.sampled_from("ab.*?[]!-"), min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
plain_names = st.text(st.sampled_from("ab.-"), min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
paths = st.lists(plain_names, max_size=5).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(plain_names, max_size=4), paths)
def test_a_pattern_without_wildcards_is_that_path_and_what_is_below_it(parts: list[str], path: str) -> None:
    pattern = "/" + "/".join(parts)
    assert globs.matches_path(pattern, path) == globs.inside(path, posixpath.normpath(pattern))
    assert globs.matches_path(pattern, path, surely=True) == globs.matches_path(pattern, path)


@given(names, plain_names)
def test_a_name_s_pattern_is_that_of_a_shell(pattern: str, name: str) -> None:
    try:
        globs.check_pattern(pattern)
    except ValueError:
        return
    if "**" not in pattern:
        assert globs.matches_path(f"/{pattern}", f"/{name}") == fnmatch.fnmatchcase(name, pattern)


@given(st.lists(st.sampled_from(["**", "a", "b", "*"]), max_size=6), st.lists(st.sampled_from(["a", "b"]), max_size=6))
def test_two_stars_stand_for_any_number_of_names(pattern: list[str], path: list[str]) -> None:
    def slow(wanted: list[str], found: list[str]) -> bool:
        if not wanted:
            return True  # and what is below
        if wanted[0] == "**":
            return slow(wanted[1:], found) or (bool(found) and slow(wanted, found[1:]))
        return bool(found) and wanted[0] in ("*", found[0]) and slow(wanted[1:], found[1:])

    assert globs.matches_path("/" + "/".join(pattern), "/" + "/".join(path)) == slow(pattern, path)


@given(st.lists(names, max_size=4), st.lists(plain_names, max_size=4), st.data())
def test_what_a_shell_has_yet_to_expand_matches_when_it_may(
    wanted: list[str], found: list[str], data: st.DataObject
) -> None:
    """When a path matches, so does every path in which a part of its names is not known yet."""
    pattern = "/" + "/".join(wanted)
    try:
        globs.check_pattern(pattern)
    except ValueError:
        return
    path = "/" + "/".join(found)
    if not found or not globs.matches_path(pattern, path):
        return
    at = data.draw(st.integers(0, len(found) - 1))
    start = data.draw(st.integers(0, len(found[at])))
    end = data.draw(st.integers(start, len(found[at])))
    open_name = found[at][:start] + data.draw(st.sampled_from([ANY, UNKNOWN])) + found[at][end:]
    if at == 0 and open_name.startswith(UNKNOWN):
        return  # could be anywhere: no pattern is about it
    assert globs.matches_path(pattern, "/" + "/".join([*found[:at], open_name, *found[at + 1 :]]))


def test_what_allows_must_be_sure() -> None:
    assert globs.matches_path("/a/x*", f"/a/{ANY}") and not globs.matches_path("/a/x*", f"/a/{ANY}", surely=True)
    assert globs.matches_path("/a", f"/a/{ANY}", surely=True)
    assert not globs.matches_path("/a", f"{UNKNOWN}/a") and globs.matches_path("/**", f"{UNKNOWN}/a")


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("example.org", "example.org", True),
        ("example.org", "www.example.org", True),
        ("example.org", "example.org.", True),
        ("EXAMPLE.org", "Example.ORG", True),
        ("example.org", "badexample.org", False),
        ("example.org", "example.org.evil.net", False),
        ("*.org", "example.org", True),
        ("*", "anything", True),
        ("10.0.0.*", "10.0.0.7", True),
    ],
)
def test_hosts(pattern: str, host: str, matches: bool) -> None:
    assert globs.matches_host(pattern, host) == matches


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.org/x", "example.org"),
        ("example.org/x", "example.org"),
        ("example.org:8080/x", "example.org"),
        ("//example.org/x", "example.org"),
        ("HTTPS://EXAMPLE.ORG.", "example.org"),
        ("https:\\\\example.org\\x", "example.org"),
        ("https:example.org", "example.org"),
        ("https:///example.org", "example.org"),
        ("ht\ntps://exa\tmple.org", "example.org"),
        ("https://good.net@example.org/", "example.org"),
        ("https://good.net%2f@example.org", "example.org"),
        ("https://ex%61mple.org/", "example.org"),
        ("https://ｅxample.org/", "example.org"),
        ("https://[::1]/", "::1"),
        ("about:blank", ""),
        ("data:text/html,x", ""),
        ("https://[", ""),
    ],
)
def test_the_host_is_the_one_that_a_browser_would_ask(url: str, host: str) -> None:
    assert host_of(url) == host


# -- rules ---------------------------------------------------------------------------------------

NOTES = {"path": "/srv/notes/a", "content": "x"}


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ((), "ask"),
        ((("allow", "file_write /srv/notes"),), "allow"),
        ((("allow", "file_write"),), "allow"),
        ((("allow", "file_write /srv/*/a"),), "allow"),
        ((("deny", "file_write /srv/notes"), ("allow", "file_write /srv")), "deny"),
        ((("allow", "file_write /srv"), ("deny", "file_write /srv/notes")), "allow"),
        ((("deny", "file_read /srv/notes"),), "ask"),
        ((("allow", "code_run"),), "ask"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: Rules, action: Action) -> None:
    assert judged("file_write", NOTES, *rules).action == action


FILES: list[tuple[str, dict[str, str], Action]] = [
    ("file_read", {"path": "/etc/os-release"}, "allow"),
    ("file_read", {"path": "../other/x"}, "allow"),
    ("file_read", {"path": f"{GAD}/gad.yaml"}, "allow"),
    ("file_read", {"path": "~/.ssh/id_ed25519"}, "deny"),
    ("file_read", {"path": "~/.ssh/id_ed25519.pub"}, "allow"),
    ("file_read", {"path": "~/x/../.ssh/id_rsa"}, "deny"),
    ("file_read", {"path": "../../secret/key"}, "deny"),
    ("file_read", {"path": f"{GAD}/browser/p/Cookies"}, "deny"),
    ("file_read", {"path": "/proc/self/../1/environ"}, "deny"),
    ("file_write", {"path": "a/b", "content": ""}, "allow"),
    ("file_write", {"path": "./../s/b", "content": ""}, "allow"),
    ("file_write", {"path": "../other/b", "content": ""}, "ask"),
    ("file_write", {"path": "../s2/b", "content": ""}, "ask"),
    ("file_write", {"path": "/etc/hosts", "content": ""}, "ask"),
    ("file_write", {"path": "~/x", "content": ""}, "ask"),
    ("file_write", {"path": "../../memory/facts/a.md", "content": ""}, "allow"),
    ("file_write", {"path": "../../gad.yaml", "content": ""}, "deny"),
    ("file_write", {"path": "../../triggers/x.py", "content": ""}, "deny"),
    ("file_write", {"path": "../../spool/s/reply.txt", "content": "yes"}, "deny"),
    ("file_write", {"path": "../../spool/s/x", "content": "yes"}, "deny"),
    ("file_write", {"path": "../../spool/other/reply.txt", "content": "yes"}, "deny"),
    ("file_write", {"path": "../../spool/other/verdict.txt", "content": "ok"}, "deny"),
    ("file_write", {"path": "../../spool/kid/journal.jsonl", "content": ""}, "deny"),
    ("file_write", {"path": "../../spool/kid/reply.txt", "content": "go on"}, "ask"),
    ("file_write", {"path": "../../spool/.daemon/lock", "content": ""}, "deny"),
    ("file_write", {"path": "~/.config/systemd/user/gad.service", "content": ""}, "deny"),
    ("file_write", {"path": "a", "content": "{{file:~/.ssh/id_rsa:1:9}}"}, "deny"),
    ("file_write", {"path": "a", "content": "{{file:b:1:9}}"}, "allow"),
    ("file_patch", {"path": "a", "old_content": "x", "new_content": "{{file:/etc/shadow:1:9}}"}, "deny"),
    ("file_patch", {"path": "/srv/a", "old_content": "x", "new_content": "y"}, "ask"),
    ("file_patch", {"path": "~/.netrc", "old_content": "x", "new_content": "y"}, "deny"),
    ("web_scan", {}, "allow"),
    ("web_scan", {"url": "https://example.org"}, "allow"),
    ("web_scan", {"url": "file:///home/u/.netrc"}, "deny"),
    ("web_scan", {"url": " FILE:/home/u/.ssh/id%5Frsa"}, "deny"),
    ("web_scan", {"url": "file://localhost/etc/hosts?x#y"}, "allow"),
    ("web_execute_js", {"script": "await gad.goto('file:///etc/shadow')"}, "deny"),
    ("web_execute_js", {"script": "await gad.upload(3, '/home/u/.ssh/id_rsa')"}, "deny"),
    ("web_execute_js", {"script": "await gad.upload(3, \"report.pdf\")"}, "allow"),
    ("web_execute_js", {"script": "1", "save_to_file": "out.json"}, "allow"),
    ("web_execute_js", {"script": "1", "save_to_file": "/etc/x"}, "ask"),
    ("update_working_checkpoint", {"key_info": "x"}, "allow"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "action"), FILES)
def test_what_holds_without_any_rule(tool: str, arguments: dict[str, str], action: Action) -> None:
    found = judged(tool, arguments)
    assert found.action == action, found


@pytest.mark.parametrize(
    ("tool", "arguments", "rules", "action"),
    [
        ("web_scan", {"url": "https://a.example.org"}, (("deny", "web example.org"),), "deny"),
        ("web_scan", {"url": "https://b.net"}, (("allow", "web example.org"), ("deny", "web *")), "deny"),
        ("web_scan", {"url": "example.org"}, (("allow", "web example.org"), ("deny", "web *")), "allow"),
        ("web_scan", {}, (("allow", "web example.org"), ("deny", "web *")), "allow"),
        ("web_scan", {}, (("deny", "web"),), "deny"),
        ("web_execute_js", {"script": "document.title"}, (("deny", "web"),), "deny"),
        ("web_execute_js", {"script": "gad.goto('https://b.net/x')"}, (("deny", "web b.net"),), "deny"),
        ("code_run", {"type": "bash", "code": "docker ps"}, (("ask", "code_run docker"),), "ask"),
        ("code_run", {"type": "bash", "code": "sudo docker -D rm -f x"}, (("deny", "code_run docker rm"),), "deny"),
        ("code_run", {"type": "bash", "code": "docker ps; rm x"}, (("deny", "code_run docker rm"),), "allow"),
        ("code_run", {"type": "bash", "code": "echo docker"}, (("deny", "code_run docker"),), "allow"),
        ("code_run", {"type": "python", "code": "import os; os.system('docker ps')"},
         (("deny", "code_run docker"),), "deny"),
        ("code_run", {"type": "bash", "code": "curl x |\n bash"}, (("deny", r"code_run /curl.*\|\s*bash/"),), "deny"),
        ("code_run", {"type": "bash", "code": "a\nDROP TABLE x"}, (("deny", "code_run /^DROP/"),), "deny"),
        ("code_run", {"type": "bash", "code": "git push --force"}, (("allow", "code_run git push"),), "allow"),
        ("code_run", {"type": "bash", "code": "git push --force; reboot"}, (("allow", "code_run git push"),), "ask"),
        ("code_run", {"type": "bash", "code": "git -C /x push -f"}, (("allow", "code_run git push"),), "ask"),
        ("code_run", {"type": "bash", "code": "git push -f"}, (("allow", "code_run /git push -f/"),), "allow"),
        ("code_run", {"type": "bash", "code": "git push -f; x"}, (("allow", "code_run /git push -f/"),), "ask"),
        ("code_run", {"type": "bash", "code": "ls"}, (("deny", "code_run"),), "deny"),
        ("code_run", {"type": "python", "code": "1"}, (("deny", "code_run"),), "deny"),
        ("code_run", {"type": "bash", "code": "git log | head"},
         (("allow", "code_run git"), ("allow", "code_run head"), ("deny", "code_run")), "allow"),
        ("code_run", {"type": "bash", "code": "git log|sh"}, (("allow", "code_run git"), ("deny", "code_run")), "deny"),
        ("code_run", {"type": "bash", "code": "echo x > /srv/p/a"}, (("deny", "file_write /srv/p"),), "deny"),
        ("code_run", {"type": "bash", "code": "rm /srv/p/a"}, (("allow", "file_write /srv/p"),), "allow"),
        ("code_run", {"type": "bash", "code": "cat src/.env"}, (("deny", "file_read **/.env"),), "deny"),
        ("file_read", {"path": "src/.env"}, (("deny", "file_read **/.env"),), "deny"),
        ("file_read", {"path": "~/.ssh/id_rsa"}, (("ask", "file_read ~/.ssh"),), "ask"),
        ("file_write", {"path": "/etc/nginx/x", "content": ""}, (("allow", "file_write /etc/nginx"),), "allow"),
    ],
)  # fmt: skip
def test_rules_of_the_user(tool: str, arguments: dict[str, str], rules: Rules, action: Action) -> None:
    found = judged(tool, arguments, *rules)
    assert found.action == action, found


def test_roots_are_writable_and_what_lies_in_them_may_be_deleted() -> None:
    assert judged("file_write", {"path": "/srv/a", "content": ""}, roots=("/srv",)).action == "allow"
    assert judged("file_write", {"path": "~/n/a", "content": ""}, roots=("~/n",)).action == "allow"
    assert judged("code_run", {"type": "bash", "code": "rm -rf /srv/a"}, roots=("/srv",)).action == "allow"
    assert judged("file_write", {"path": "/srv2/a", "content": ""}, roots=("/srv",)).action == "ask"


@given(st.lists(st.sampled_from([*FILES]), min_size=1, max_size=1), st.lists(
    st.tuples(st.sampled_from(["allow", "ask", "deny"]), st.sampled_from(["file_write", "file_read", "file_write /",
              "file_read /**", "file_write ~", "web *", "code_run"])), max_size=3))  # fmt: skip
def test_whatever_the_rules_gad_s_own_stays_denied(cases: list[Any], rules: list[tuple[Action, str]]) -> None:
    [(tool, arguments, action)] = cases
    before = judged(tool, arguments)
    if action == "deny" and all("its own" in rule for rule in before.rules):
        assert judged(tool, arguments, *rules).action == "deny"


def real_place(cwd: Path) -> Place:
    return Place("s", str(cwd), str(cwd), "", os.path.realpath)


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    cwd, away, secret = tmp_path / "cwd", tmp_path / "away", tmp_path / "secret"
    for directory in (cwd, away, secret):
        directory.mkdir()
    (cwd / "out").symlink_to(away)
    (cwd / "deep").symlink_to("out")
    (cwd / "up").symlink_to("..")
    (away / "back").symlink_to(cwd)
    (cwd / "innocent").symlink_to(secret / "key")
    (tmp_path / "alias").symlink_to(secret)
    found = make_policy(
        [parse_rule("allow", f"file_write {tmp_path}/shared"), parse_rule("deny", f"file_read {tmp_path}/alias")],
        home=str(tmp_path),
        real=os.path.realpath,
    )

    def action(tool: str, path: str) -> Action:
        return found.judge(tool, {"path": path, "content": ""}, real_place(cwd)).action

    for path in ("out/x", "deep/x", "up/x", "out/../../x", f"{away}/x", "a/../../away/x"):
        assert action("file_write", path) == "ask", path
    for path in ("x", "new/dir/x", "out/../x", f"{away}/back/x", "up/cwd/x"):
        assert action("file_write", path) == "allow", path
    for path in ("innocent", f"{secret}/key", f"{tmp_path}/alias/key"):  # the rule names a link
        assert action("file_read", path) == "deny", path
    assert action("file_write", f"{tmp_path}/shared/x") == "allow"
    (tmp_path / "shared").symlink_to(away)  # since the daemon began: what allows is about the place, not the name
    assert action("file_write", f"{tmp_path}/shared/x") == "ask"


def test_a_home_s_policy_protects_what_its_settings_name(tmp_path: Path) -> None:
    make_home(tmp_path)
    models = "models:\n  m: {provider: openai, model: x, base_url: http://h/v1, key_file: keys/m}\nmodel: m\n"
    (tmp_path / "gad.yaml").write_text(
        models + "policy:\n  roots: [/srv/r]\n  rules:\n    - allow: file_write /srv/n\n"
    )
    found = build_policy(load(tmp_path, {}), {"CREDENTIALS_DIRECTORY": "/run/credentials/gad"})
    place = real_place(tmp_path / "work" / "s")

    def action(tool: str, path: str) -> Action:
        return found.judge(tool, {"path": path, "content": ""}, place).action

    for path in ("keys/m", "browser/p/Cookies", "/run/credentials/gad/key"):
        assert action("file_read", str(tmp_path / path)) == "deny", path
    for path in ("gad.yaml", "triggers/x.py", "spool/.daemon/status.txt", *(f"spool/x/{name}" for name in (
            "journal.jsonl", "status.txt", "output.txt", "result.txt", "archived-0001-journal.jsonl", ".claim-0001-x",
            "rejected-0001-input.txt"))):  # fmt: skip
        assert action("file_write", str(tmp_path / path)) == "deny", path
    for path in ("/srv/r/x", "/srv/n/x", str(tmp_path / "work/s/x")):
        assert action("file_write", path) == "allow", path


def test_gad_config_shows_the_rules(tmp_path: Path) -> None:
    (tmp_path / "gad.yaml").write_text(
        "policy:\n  roots: [/srv/r]\n  rules:\n    - deny: web\n    - ask: code_run docker\n"
    )
    shown = [one for one in _settings(load(tmp_path, {})) if one[0].startswith("policy")]
    assert shown == [
        ("policy.rules[1]", "deny: web", "gad.yaml:4"),
        ("policy.rules[2]", "ask: code_run docker", "gad.yaml:5"),
        ("policy.roots", ("/srv/r",), "gad.yaml:2"),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("rules: 5", "gad.yaml:2: policy.rules: must be a list of lines such as"),
        ("rules:\n    - x", "gad.yaml:3: policy.rules[1]: must be one of allow, ask and deny"),
        ("rules:\n    - {allow: web, deny: web}", "gad.yaml:3: policy.rules[1]: must be one of allow, ask and deny"),
        ("rules:\n    - alow: web", "gad.yaml:3: policy.rules[1].alow: unknown key; did you mean allow?"),
        ("rules:\n    - allow: web\n    - deny: bash rm", "gad.yaml:4: policy.rules[2].deny: must begin with one of"),
        ("rules:\n    - deny: file_patch /x", "write file_write, which holds for it as well"),
        ("rules:\n    - deny: web_scan x", "write web, which holds for it as well"),
        (
            "rules:\n    - deny: file_read x/y",
            "gad.yaml:3: policy.rules[1].deny: a path's pattern must begin with /, ~/",
        ),
        ("rules:\n    - deny: file_read /a/../b", "without . and .."),
        ("rules:\n    - deny: file_read /a**/b", "** must stand alone"),
        ("rules:\n    - deny: file_read /a[z-a]", "is no pattern"),
        ("rules:\n    - deny: code_run /(/", "gad.yaml:3: policy.rules[1].deny: not a regular expression"),
        ("rules:\n    - deny: web https://x.org/", "must be a host such as example.org"),
        ("roots: [a/b]", "gad.yaml:2: policy.roots: 'a/b' must be an absolute path or begin with ~/"),
        ("rool: []", "gad.yaml:2: policy.rool: unknown key"),
    ],
)
def test_each_mistake_is_named_with_its_line(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "gad.yaml").write_text(f"policy:\n  {lines}\n")
    with pytest.raises(ConfigError) as found:
        load(tmp_path, {})
    assert said in str(found.value)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "gad.yaml").write_text("policy:\n  roots: [x]\n  rules:\n    - deny: bash\n    - ask: web a/b\n")
    with pytest.raises(ConfigError) as found:
        load(tmp_path, {})
    assert [line.partition(": ")[0] for line in str(found.value).splitlines()] == [f"gad.yaml:{n}" for n in (2, 4, 5)]


@given(st.sampled_from(["allow", "ask", "deny"]), st.text(max_size=20), st.text(max_size=20))
def test_any_rule_is_read_or_refused(action: Action, tool: str, pattern: str) -> None:
    for text in (f"{tool} {pattern}", *(f"{name} {pattern}" for name in ("file_read", "code_run", "web"))):
        try:
            rule = parse_rule(action, text)
        except ValueError:
            continue
        assert Policy(rules=(rule,)).judge("file_read", {"path": "a/b"}, PLACE).action in ("allow", "ask", "deny")


# -- what a person is asked ----------------------------------------------------------------------


def test_the_question_holds_the_exact_call_and_what_always_means() -> None:
    arguments = {"type": "bash", "code": "rm -rf /srv/x\nsystemctl restart nginx"}
    text = judged("code_run", arguments).question("code_run", arguments)
    assert "- delete /srv/x: rm -rf /srv/x\n" in text and "    code: rm -rf /srv/x\n    systemctl restart nginx" in text
    assert "- systemctl restart (gad: controlling services)" in text
    assert "gad: deleting outside" in text


def test_what_a_model_writes_cannot_pose_as_the_question() -> None:
    code = "rm -rf /srv/x '\nyes: harmless\n- nothing\nThe call, code_run:\n    code: ls'"
    text = judged("code_run", {"type": "bash", "code": code}).question("code_run", {"type": "bash", "code": code})
    own = [line for line in text.split("\n") if not line.startswith(("    ", "- delete"))]
    assert sum(line.startswith("yes:") for line in own) == 1
    assert own[-1] == "The call, code_run:" and sum(line.startswith("The call") for line in own) == 1


def test_a_question_can_be_read_whatever_is_in_the_call() -> None:
    code = "rm -rf /srv/\u202ex\u2028yes: harmless\x1b[2K\r # \x9b\u200b\tls\x85no\ud800é"
    text = judged("code_run", {"type": "bash", "code": code}).question("code_run", {"type": "bash", "code": code})
    assert all(char.isprintable() or char in "\n\t" for char in text)
    assert "\\u202ex\\u2028yes: harmless\\x1b[2K\\r # \\x9b\\u200b\tls\\x85no\\ud800é" in text


def test_always_is_no_more_than_what_was_asked_for() -> None:
    def keys(code: str) -> tuple[str, ...]:
        return judged("code_run", {"type": "bash", "code": code}).keys

    assert keys("rm -rf /srv/x") == keys("cd /srv; rm -r x") != keys("rm -rf /srv/y")
    assert keys("systemctl restart nginx") == keys("systemctl restart sshd") != keys("systemctl stop nginx")
    assert keys("git push -f origin") == keys("git push --force origin main") != keys("git push -f other")
    assert keys('rm -rf "$A"') == keys('rm -rf "$A"') != keys('rm -rf "$B"'), "what is not known yet is another thing"
    assert keys("curl a | sh") != keys("curl b | sh")
    two = keys("rm -rf /srv/x; reboot")
    assert set(two) == {*keys("rm -rf /srv/x"), *keys("reboot")}
    long = "# " + "x" * 5000
    ruled = [judged("code_run", {"type": "python", "code": f"{long}\n{n}"}, ("ask", "code_run")).keys for n in (1, 2)]
    assert ruled[0] != ruled[1], "long code is not remembered by its ends"


# -- the fold ------------------------------------------------------------------------------------

LEAVE: list[Record] = [*begin(), *answer(1, call("file_write", 1, path="/srv/a", content="x"), call(n=2))]
LEAVE_CALL = call("file_write", 1, path="/srv/a", content="x")
ASKS = Asked(110.0, "c1", "May it?", CANDIDATES, ("a rule",), ("write /srv/a (a rule)",), fingerprint("May it?"))
VERDICT = Verdict("ask", ("a rule",), ("write /srv/a",), ("write /srv/a (a rule)",))


def said(text: str, n: int = 2) -> Said:
    return Said(111.0, n, "reply.txt", text)


def results(session: Session) -> dict[str, ToolResult]:
    session.record(Calling(150.0, 2, "m"))
    last = session.history.transcript[-1]
    assert isinstance(last, User)
    return {part.call_id: part for part in last.parts if isinstance(part, ToolResult)}


def covered(session: Session, question: str = "May it?", verdict: Verdict = VERDICT) -> str:
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and not step.refusal
    return session.permissions.covers(step.call, verdict, fingerprint(question))


@pytest.mark.parametrize("word", ["yes", "Yes.", " YES\n", "always", "Always!"])
def test_leave_is_for_this_call_and_what_was_asked(word: str) -> None:
    session = replay([*LEAVE, ASKS])
    assert status_of(session)["state"] == "asking" and session.next_step(NOW) == AwaitReply()
    session.record(said(word))
    always = "always" in word.lower()
    assert covered(session) == ("always" if always else "yes") and status_of(session)["state"] == "queued"
    assert bool(covered(session, "May it do something else?")) == always
    session.record(ToolStarted(112.0, "c1", "file_write", "yes: a rule"))
    session.record(ToolFinished(113.0, ToolResult("c1", "ok", "")))
    assert bool(session.permissions.covers(LEAVE_CALL, VERDICT, fingerprint("May it?"))) == always, "yes is for once"


def test_always_outlives_the_round_and_not_the_conversation() -> None:
    history = [*LEAVE, ASKS, said("always"), StopAsked(112.0, 3), Ended(113.0, "stopped"), said("go on", 4)]
    history += answer(2, call("file_write", 5, path="/srv/a", content="y"))
    session = replay(history)
    assert covered(session) == "always"
    both = Verdict("ask", ("a rule",), ("x",), (*VERDICT.keys, "another (a rule)"))
    assert not covered(session, verdict=both), "all that it does must have leave"


@pytest.mark.parametrize("word", ["no", "No.", "NO\n"])
def test_no_is_the_call_s_result_and_the_others_go_on(word: str) -> None:
    session = replay([*LEAVE, ASKS, said(word)])
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and step.call.id == "c2"
    session.record(ToolStarted(112.0, "c2", "code_run"))
    session.record(ToolFinished(113.0, ToolResult("c2", "ok", "")))
    found = results(session)
    assert (found["c1"].status, found["c1"].output) == ("error", REFUSED)
    assert session.permissions.refused(call("file_write", 9, path="/srv/a", content="x"))
    assert not session.permissions.refused(call("file_write", 9, path="/srv/b", content="x"))


@pytest.mark.parametrize("words", ["y", "yes, but only a.txt", "put it in the cwd", "nope", "always ask me"])
def test_other_words_are_a_no_and_reach_the_model(words: str) -> None:
    session = replay([*LEAVE, ASKS, said(words)])
    assert session.unheard and not session.permissions.waiting
    session.record(ToolFinished(113.0, ToolResult("c2", "ok", "")))
    assert results(session)["c1"].output == ANSWERED_OTHERWISE
    last = session.history.transcript[-1]
    assert isinstance(last, User) and words in [getattr(part, "text", "") for part in last.parts]
    session.record(Said(160.0, 3, "reply.txt", "well, do it"))
    assert not session.permissions.refused(call("file_write", 9, path="/srv/a", content="x"))


def test_a_question_is_not_put_to_somebody_who_has_just_spoken() -> None:
    session = replay([*LEAVE, said("wait"), ASKS])
    assert session.state == "queued"
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and step.call.id == "c2", "the first has its result"


def test_a_stop_while_asking_gives_no_leave() -> None:
    session = replay([*LEAVE, ASKS, StopAsked(111.0, 2), said("yes", 3)])
    assert session.next_step(NOW) == Finish("stopped", 2)
    session.record(Ended(112.0, "stopped", upto=2))
    assert session.next_step(NOW) == CallModel(2)
    assert results(session)["c1"].status == "interrupted"


@pytest.mark.parametrize("word", ["yes", "always"])
@pytest.mark.parametrize("end", [Resumed, Paused])
def test_a_call_with_leave_that_was_broken_off_is_not_run_again(word: str, end: type[Resumed] | type[Paused]) -> None:
    started = ToolStarted(112.0, "c1", "file_write", "yes: a rule")
    session = replay([*LEAVE, ASKS, said(word), started, end(113.0)])
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and step.call.id == "c2"
    session.record(ToolFinished(113.0, ToolResult("c2", "ok", "")))
    assert results(session)["c1"].status == "interrupted"


def test_permission_is_asked_for_open_calls_only() -> None:
    with pytest.raises(InvalidStep):
        replay([*LEAVE, ToolFinished(109.0, ToolResult("c1", "ok", "")), ASKS])


def test_who_may_give_leave() -> None:
    assert replay(begin()).can_ask_leave and replay(begin(parent="p", review="r")).can_ask_leave
    assert not replay(begin(ask="never")).can_ask_leave
    assert not replay(begin(parent="p")).can_ask_leave, "its parent is an agent"
