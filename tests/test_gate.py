"""What may be written into memory: every refusal with its reason, and what is near it and must pass."""

from __future__ import annotations

import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.gate import LINE_LENGTH, SOP_LENGTH, Proof, check_file, check_path, check_write, unfit
from gad.core.sop import Sop, render_sop
from gad.errors import MemoryRefused

SESSION = "build-7"
CALLS = (
    Proof(1, "code_run", True, "make test"),
    Proof(2, "code_run", False, "make deploy"),
    Proof(3, "file_read", True, "Makefile"),
    Proof(4, "ask_user", True, "which host?"),
    Proof(5, "update_working_checkpoint", True, "noted"),
    Proof(6, "start_long_term_update", True, "rules"),
    Proof(7, "file_read", True, "memory/facts/a.md", of_memory=True),
    Proof(8, "file_write", True, "memory/log.md", of_memory=True),
    Proof(9, "code_run", True, "make deploy"),
)


def check(added: str, path: str = "facts/build.md", *, open_phase: bool = True) -> tuple[str, tuple[int, ...]]:
    return check_write(path, added, open_phase=open_phase, calls=CALLS, session=SESSION)


def refused(added: str, *reasons: str, path: str = "facts/build.md", open_phase: bool = True) -> None:
    with pytest.raises(MemoryRefused) as caught:
        check(added, path, open_phase=open_phase)
    for reason in reasons:
        assert reason in str(caught.value)


# Proof


@pytest.mark.parametrize(
    ("added", "text", "evidence"),
    [
        ("- a\n[proof: 1]", "- a", (1,)),
        ("- a\n[proof: 1]\n", "- a\n", (1,)),
        ("- a\n\n[proof: 3, 9, 3]\n\n", "- a\n\n", (3, 9)),
        ("- a\r\n[Proof: 1 9]\r\n", "- a\r\n", (1, 9)),
        ("echo\n# [proof: #9]\n", "echo\n", (9,)),
        ("[proof: 1]", "", (1,)),
        ("[proof: 1]\n", "", (1,)),
        ("- see [proof: 2] in the paper\n[proof: 1]", "- see [proof: 2] in the paper", (1,)),
    ],
)
def test_the_proof_is_taken_off(added: str, text: str, evidence: tuple[int, ...]) -> None:
    assert check(added) == (text, evidence)


@pytest.mark.parametrize(
    ("added", "reasons"),
    [
        ("- a", ("no proof", "[proof: 3, 7]")),
        ("", ("no proof",)),
        ("[proof: 1]\n- a", ("must be the last line",)),
        ("- a\n[proof: ]", ("names no calls",)),
        ("- a\n[proof: make test]", ("names no calls",)),
        ("- a\n[proof: -1]", ("names no calls",)),
        ("- a\n[proof: 10]", ("there is no call 10", "1, 3, 9")),
        ("- a\n[proof: 0]", ("there is no call 0",)),
        ("- a\n[proof: 2]", ("call 2 (code_run: make deploy) failed", "1, 3, 9")),
        ("- a\n[proof: 1, 2]", ("call 2",)),
        ("- a\n[proof: 4]", ("call 4 (ask_user) proves nothing",)),
        ("- a\n[proof: 5]", ("call 5 (update_working_checkpoint) proves nothing",)),
        ("- a\n[proof: 6]", ("call 6 (start_long_term_update) proves nothing",)),
        ("- a\n[proof: 7]", ("call 7 (file_read) only read or wrote memory",)),
        ("- a\n[proof: 8]", ("call 8 (file_write) only read or wrote memory",)),
    ],
)
def test_a_proof_that_is_none(added: str, reasons: tuple[str, ...]) -> None:
    refused(added, *reasons)


def test_nothing_is_written_outside_a_phase() -> None:
    refused("- a\n[proof: 1]", "start_long_term_update first", open_phase=False)


def test_without_any_good_call_the_reason_says_so() -> None:
    with pytest.raises(MemoryRefused, match="no call of this session would do"):
        check_write("log.md", "- a\n[proof: 1]", open_phase=True, calls=(), session=SESSION)


# Paths


@pytest.mark.parametrize(
    "path",
    [
        "facts/build.md",
        "facts/部署.md",
        "facts/node_18.md",
        "sops/a/SOP.md",
        "sops/go-2/run.py",
        "sops/a/run.sh",
        "log.md",
    ],
)
def test_what_an_agent_may_write(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("index.md", "is generated"),
        ("sops/all.md", "is generated"),
        ("sops/by/deploy.md", "is generated"),
        ("meta.md", "not yours to write"),
        ("controller.json", "not yours to write"),
        ("changes.jsonl", "not yours to write"),
        ("archive/2026-01-01/a.jsonl.zst", "not yours to write"),
        ("archive/index.jsonl", "not yours to write"),
        (".lock", "not yours to write"),
        ("facts/a.txt", "not yours to write"),
        ("facts/a/b.md", "not yours to write"),
        ("facts/../meta.md", "not yours to write"),
        ("sops/a/case.yaml", "not yours to write"),
        ("sops/a/run.rb", "not yours to write"),
        ("sops/SOP.md", "not yours to write"),
        ("sops/../SOP.md", "the name '..' must be"),
        ("/etc/passwd", "not yours to write"),
        ("", "not yours to write"),
        ("facts/.md", "the name '' must be"),
        ("facts/Build.md", "the name 'Build' must be"),
        ("sops/Deploy It/SOP.md", "the name 'Deploy It' must be"),
        ("sops/all/SOP.md", "is the name of a listing"),
        ("facts/release-2026-01-31.md", "a date in the name"),
        ("sops/deploy-20260131/SOP.md", "a date in the name"),
    ],
)
def test_what_an_agent_may_not_write(path: str, reason: str) -> None:
    refused("- a\n[proof: 1]", reason, path=path)


@pytest.mark.parametrize("path", ["facts/python-3-12.md", "facts/rfc-20260.md", "sops/port-8080/SOP.md"])
def test_a_number_in_a_name_is_no_date(path: str) -> None:
    check_path(path)


# Form


def test_an_sop_has_valid_front_matter_and_a_bounded_body() -> None:
    whole = Sop("deploy", ("ship",), "release", body="x" * (SOP_LENGTH - 1) + "\n")
    check_file("sops/deploy/SOP.md", render_sop(whole))
    with pytest.raises(MemoryRefused, match="6,001 characters"):
        check_file("sops/deploy/SOP.md", render_sop(Sop("deploy", ("ship",), "release", body="x" * SOP_LENGTH + "\n")))
    with pytest.raises(MemoryRefused, match="begins with its front matter"):
        check_file("sops/deploy/SOP.md", "# Deploy\n")
    with pytest.raises(MemoryRefused, match="front matter's name is 'deploy', the directory's 'other'"):
        check_file("sops/other/SOP.md", render_sop(whole))


@pytest.mark.parametrize("path", ["facts/a.md", "log.md"])
def test_a_line_of_facts_is_bounded(path: str) -> None:
    check_file(path, "x" * LINE_LENGTH + "\nok\n")
    with pytest.raises(MemoryRefused, match="line 2 has 301 characters"):
        check_file(path, "ok\n" + "x" * (LINE_LENGTH + 1) + "\n")
    check_file("sops/a/run.py", "x" * 1000)


# Contents

VOLATILE = [
    ("the server runs as pid 4711", "process id"),
    ("PID: 99", "process id"),
    ("its process id is 1234", "process id"),
    ("built at 2026-01-31T12:00:05Z", "a moment"),
    ("built at 2026-01-31 12:00", "a moment"),
    ("seen 31.01.2026, 12:00", "a moment"),
    ("seen 1/31/2026 at 9:15", "a moment"),
    ("Jan 31 12:00:01 host sshd", "a moment"),
    ("on 31 January 2026 12:00", "a moment"),
    ("stamp 1769860805", "a timestamp"),
    ("stamp 1769860805123", "a timestamp"),
    ("stamp 1769860805.25", "a timestamp"),
    ("the output is in /tmp/out.txt", "a temporary path"),
    ("see /var/tmp/x/y", "a temporary path"),
    ("see /dev/shm/cache", "a temporary path"),
    ("see /private/tmp/x", "a temporary path"),
    ("found in session build-7", "this session's own"),
    ("see work/build-7/notes.txt", "this session's own"),
    ("the run BUILD-7 did it", "this session's own"),
]

SECRET = [
    "use sk-abcdefgh12345678ijkl",
    "sk-proj-AbCd1234EfGh5678IjKl",
    "sk-ant-api03-abcdefghijklmnop",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 8,
    "glpat-abcdefghij1234567890",
    "xoxb-1234567890-abcdef",
    "AKIA" + "ABCDEFGH12345678",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "hf_" + "abcdEFGH1234ijklMNOP",
    "npm_" + "a1B2c3" * 6,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----",
    "password: hunter",
    "Password: hunter2",
    "the password is hunter2",
    "passwd=correct-horse",
    'DB_PASSWORD="s3cret!"',
    "passphrase: tr0ub4dor",
    "api_key: 9f8e7d6c5b4a",
    "API key = abcd1234efgh",
    "token=abc123def456",
    "access_token: 'a1b2c3d4'",
    "client_secret: 8s7df6g5h4",
    'secret = "open-sesame"',
    "Authorization: Bearer abcdef1234567890abcd",
    "Authorization: Basic dXNlcjpwYXNzd29yZDE=",
    "postgres://app:s3cr3t@db:5432/app",
    "https://bob:pw@example.org/",
    "value aG9sYSBxdWUgdGFsIGVzdGFzMTIzNDU2Nzg5MFhZWg",
    "value q7Xw2Kz9LmP4vB8nR1tY6uJ3",
    "signing material " + "0123456789abcdef" * 4,
]

FINE = [
    "Python 3.12.4 and node 18.19.1 are installed",
    "the API is stable since 2024-10-01",
    "cron runs the backup at 03:00 every day",
    "jobs are limited to --time=01:00:00",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 broke it",
    "commit 9fceb02 broke it",
    "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "the namespace is 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "libraries lie in /usr/lib/x86_64-linux-gnu/libFoo2.so",
    "/tmp is a tmpfs; use mktemp",
    "a token is a unit of text; 4 characters are about one token",
    "token: the unit in which models count",
    "the token is read from $GITHUB_TOKEN",
    "password: stored in the keyring",
    "password: $DB_PASSWORD",
    "password: <your password>",
    "password={{ vault_password }}",
    "the password is asked for at the prompt",
    'password = os.environ["DB_PASSWORD"]',
    'token = os.environ.get("TOKEN")',
    "token = get_token()",
    "connect(password=password)",
    "api_key: from ~/.config/app/key",
    "api_key_env: ANTHROPIC_API_KEY",
    "key_file: ~/.ssh/id_ed25519",
    "secret: see the vault",
    "postgres://app:$DB_PASSWORD@db:5432/app",
    "https://example.org:8080/path@v2",
    "ssh git@github.com:owner/repo.git",
    "the pid file is /run/nginx.pid",
    "rapid 3 and pids in general",
    "process 300 files at a time",
    "call 555-123-4567 or order 1234567890",
    "session builds end at night",
    "the build takes 7 minutes",
    "rebuild-7 and build-70 are other names",
    "class AbstractSingletonProxyFactoryBean2Implementation",
    "def test_the_second_request_is_not_sent_again_in_v2(): pass",
    "--no-install-recommends --allow-downgrades --fix-missing",
    "sk-learn-is-not-a-key-but-a-library",
    "2001:db8:85a3:8d3:1319:8a2e:370:7348",
    "52:54:00:ab:cd:ef",
    "答案用德语, 简短",
]


@pytest.mark.parametrize(("text", "reason"), VOLATILE)
def test_what_passes_away_is_refused(text: str, reason: str) -> None:
    refused(f"- {text}\n[proof: 1]", reason)


@pytest.mark.parametrize("text", SECRET)
def test_a_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(MemoryRefused, match="no place for secrets") as caught:
        check(f"- {text}\n[proof: 1]", "sops/a/SOP.md")
    assert text not in str(caught.value)


@pytest.mark.parametrize("text", FINE)
def test_what_is_near_it_passes(text: str) -> None:
    assert check(f"- {text}\n[proof: 1]") == (f"- {text}", (1,))


def test_what_gad_keeps_in_a_front_matter_is_not_judged() -> None:
    sop = render_sop(Sop("deploy", ("ship",), "release", provenance=(SESSION,), body="1. make\n"))
    runs = sop.replace("runs: []", "runs: [{at: 1769860805, tokens: 3, ok: true}]")
    assert check(f"{runs}[proof: 1]\n", "sops/deploy/SOP.md") == (runs, (1,))
    refused(f"{runs}at 1769860805\n[proof: 1]\n", "a timestamp", path="sops/deploy/SOP.md")


@pytest.mark.parametrize("session", ["deploy", "s", "a1"])
def test_a_session_that_is_called_like_a_word_forbids_no_word(session: str) -> None:
    assert unfit("deploy with a1 and s", session) is None
    assert "this session's own" in (unfit(f"as session {session} found", session) or "")


@settings(deadline=None)
@given(st.text(string.ascii_letters + string.digits, min_size=40, max_size=60))
def test_long_random_strings_are_found(text: str) -> None:
    """A string from a uniform alphabet, unless by chance it hardly has digits, or changes its class too seldom."""
    kinds = ["d" if char.isdigit() else "u" if char.isupper() else "l" for char in text]
    changes = sum(one != other for one, other in pairwise(kinds))
    if len(set(kinds)) == 3 and changes > 0.5 * len(text) and len(set(text)) > 20:
        assert unfit(f"value {text}", SESSION) is not None


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_judged(text: str) -> None:
    reason = unfit(text, SESSION)
    assert reason is None or reason
