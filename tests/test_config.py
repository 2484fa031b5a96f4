from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad import config
from gad.config import BrowserSettings, Config, Limits, Retry, SpoolSettings
from gad.core.budget import FREE, Price, cost_usd, find_price
from gad.core.messages import Usage
from gad.core.prices import SHIPPED
from gad.core.task import TaskOptions
from gad.errors import ConfigError, HomeNotFound
from gad.home import find_home, make_home, template
from gad.task_file import check_cwd, parse_task

NAMES = ("claude", "gpt", "local")


def load(home: Path, text: str, **environ: str) -> Config:
    (home / "gad.yaml").write_text(text, encoding="utf-8")
    return config.load(home, environ)


def problems(home: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as found:
        load(home, text)
    return str(found.value).splitlines()


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "{}", "\ufeff", "limits:\nmodels: {}\n", template()])
def test_a_file_that_sets_nothing_gives_the_defaults(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, text)
    assert (found.model, found.source("model")) == ("local", "default")
    assert (found.limits, found.retry, found.spool) == (Limits(), Retry(), SpoolSettings())
    assert (found.usd_per_day, found.sessions, found.ask) == (None, 16, "user")
    assert (found.browser, found.browser_dir) == (BrowserSettings(), tmp_path / "browser")
    assert set(found.models) == {"claude", "gpt", "local"}
    assert found.prices == SHIPPED
    assert found.spool_dir == tmp_path / "spool"


def test_the_template_is_the_repository_s_own_gad_yaml_and_its_examples_are_right(tmp_path: Path) -> None:
    here = Path(__file__).parent.parent
    assert template() == (here / "gad.yaml").read_text(encoding="utf-8")
    # Every commented line, taken out of its comment, is a valid setting.
    lines = [line.removeprefix("# ") for line in template().splitlines() if line.startswith("# ")]
    settings = [line for line in lines if line.startswith((" ", *config._TOP)) and ":" in line]
    found = load(tmp_path, "\n".join(settings))
    assert found.models["mine"].base_url == "http://localhost:8000/v1"
    assert (found.models["mine"].tools, found.window_of("mine")) == ("text", 20_000)
    assert found.chain_of("main") == ("claude", "gpt", "mine")
    assert found.limits.seconds == 7200
    assert found.retry == Retry()
    assert (found.browser.profiles, found.browser.idle, found.browser.sandbox) == (("shopping",), 300, "auto")


def test_every_setting_is_read_and_its_line_is_known(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """\
model: mine
models:
  mine:
    provider: openai
    model: some-model
    base_url: http://127.0.0.1:1/v1
    key_file: secret/key
    context: 32768
  local: {threads: 2, weights: ~/w.gguf}
limits: {turns: 5, tokens: 1_000, usd: 0.5, seconds: 10m}
usd_per_day: 20
sessions: 3
retry: {first: 0.5, most: 2m, give_up: 2h}
prices:
  some-model: {input: 1, output: 2, cached: 0.1, above: 1000, above_input: 2}
spool: {max_bytes: 10, users: [me, 1000], polling: on}
browser:
  {executable: bin/chrome, headless: off, profiles: "a, b", proxy: "http://me:pw@p:1", user_agent: x, idle: 90s,
   sandbox: on}
ask: never
""",
        HOME=str(tmp_path),
    )
    mine = found.models["mine"]
    assert (mine.provider, mine.api, mine.key_env, mine.key_file) == (
        "openai",
        "chat",
        None,
        str(tmp_path / "secret/key"),
    )
    assert found.models["local"].threads == 2
    assert Path(found.models["local"].weights or "").is_absolute()
    assert found.limits == Limits(5, 1000, 0.5, 600)
    assert found.retry == Retry(0.5, 120, 7200)
    assert found.spool == SpoolSettings(10, ("me", "1000"), polling=True)
    chrome = str(tmp_path / "bin/chrome")
    assert found.browser == BrowserSettings(chrome, False, None, ("a", "b"), "http://me:pw@p:1", "x", 90, "on")
    assert (found.model, found.usd_per_day, found.sessions, found.ask) == ("mine", 20, 3, "never")
    assert found.price_of(mine) == Price(1, 2, 0.1, above=1000, above_input=2)
    assert found.source("limits.usd") == "gad.yaml:10"
    assert found.source("models.mine.model") == "gad.yaml:5"


MISTAKES = [
    ("modle: x", "gad.yaml:1: modle: unknown key; did you mean model?"),
    ("\nmodel: clade", "gad.yaml:2: model: no entry of models is called 'clade'; did you mean claude?"),
    ("limits: {turns: many}", "gad.yaml:1: limits.turns: must be a whole number from 1 to 1000000, not 'many'"),
    ("limits: {turns: true}", "gad.yaml:1: limits.turns: must be a whole number from 1 to 1000000, not 'true'"),
    ("limits: {turns: 0}", "not '0'"),
    ("limits: {turns: .nan}", "not '.nan'"),
    ("limits: {usd: 1e999}", "not '1e999'"),
    ("limits: {seconds: 5 weeks}", "limits.seconds: must be seconds or a duration such as 90s, 10m or 2h"),
    ("limits: 3", "gad.yaml:1: limits: must be `key: value` lines, not '3'"),
    ("limits:\n  turns: [1]", "gad.yaml:2: limits.turns: must be a whole number from 1 to 1000000, not a list"),
    ("sessions: 4\nsessions: 5", "gad.yaml:2: sessions: given twice, first on line 1; remove one"),
    ("models: {mine: {provider: openia, model: m}}", "models.mine.provider: must be one of anthropic, openai, local"),
    ("models: {mine: {provider: openai}}", "models.mine: model is missing"),
    ("models: {mine: {}}", "models.mine: provider is missing"),
    ("models: {claude: {api: chat}}", "models.claude.api: has no meaning for provider anthropic; remove it"),
    ("models: {local: {base_url: 'http://x'}}", "models.local.base_url: has no meaning for provider local"),
    ("models: {gpt: {base_url: localhost}}", "must be a URL that begins with http:// or https://"),
    ("models: {gpt: {key_env: A, key_file: b}}", "key_env is given as well; keep one of the two"),
    ("models: {gpt: {window: 999}}", "models.gpt.window: must be a whole number from 1000 to 100000000, not '999'"),
    ("models: {gpt: {window: all}}", "models.gpt.window: must be a whole number"),
    ("models: {gpt: {tools: none}}", "models.gpt.tools: must be one of native, text, not 'none'"),
    ("models: {local: {tools: text}}", "models.local.tools: has no meaning for provider local; remove it"),
    (
        "models:\n  gpt:\n    context: 32000",
        "gad.yaml:3: models.gpt.context: a context of 32000 tokens, less max_tokens",
    ),
    ("models:\n  local:\n    max_tokens: 15000", "gad.yaml:3: models.local.max_tokens: a context of 16384 tokens"),
    ("models: {m: {chain: [gpt]}}", "models.m.chain: must name at least two entries of models"),
    ("models: {m: {chain: []}}", "models.m.chain: must name at least two entries of models"),
    ("models: {m: {chain: {a: b}}}", "models.m.chain: must be a list of words, not a mapping"),
    ("models:\n  m:\n    chain: [gpt, gpt]", "gad.yaml:3: models.m.chain: names gpt more than once; remove one"),
    ("models: {m: {chain: [gpt, clade]}}", "no entry of models is called 'clade'; did you mean claude?"),
    ("models: {m: {chain: [gpt, m]}}", "models.m.chain: m is a chain itself"),
    ("models: {m: {chain: [gpt, n]}, n: {chain: [gpt, claude]}}", "models.m.chain: n is a chain itself; name the"),
    ("models:\n  m:\n    chain: [gpt, local]\n    window: 2000", "gad.yaml:4: models.m.window: has no meaning beside"),
    ("model: mian\nmodels: {main: {chain: [gpt, local]}}", "'mian'; did you mean main?"),
    ("retry: {first: 5m, most: 1s}", "retry.first: 300 s is more than retry.most, 1 s"),
    ("prices: {x: {input: 1}}", "prices.x: output is missing"),
    ("prices: {x: {input: -1, output: 1}}", "prices.x.input: must be US dollars per million tokens"),
    ("spool: {polling: maybe}", "spool.polling: must be on or off, not 'maybe'"),
    ("browser: {sandbox: maybe}", "gad.yaml:1: browser.sandbox: must be one of auto, on, off, not 'maybe'"),
    ("browser: {cdp_url: '9222'}", "browser.cdp_url: must be a URL such as http://127.0.0.1:9222, not '9222'"),
    ("browser: {proxy: 'me:pw@host'}", "browser.proxy: must be a URL such as http://host:3128 or socks5://host:1080"),
    ("browser: {idle: 0}", "browser.idle: must be seconds or a duration"),
    ("browser: {chrome: x}", "browser.chrome: unknown key"),
    ("browser:\n  profiles: [a, ../b]", "gad.yaml:2: browser.profiles: '../b' cannot name a profile"),
    (
        "browser:\n  cdp_url: http://127.0.0.1:9222\n  headless: off",
        "gad.yaml:3: browser.headless: has no meaning beside cdp_url",
    ),
    ("- a", "gad.yaml:1: must be `key: value` lines, not a list"),
    ("a: [", "gad.yaml:1: not valid YAML"),
    ("model: x\n\tmodels: y", "gad.yaml:2: not valid YAML"),
    ("a: &x 1\nb: *x", "gad.yaml:2: an alias (*x) is not allowed; write the value out"),
    ("{}\n---\n{}", "gad.yaml:2: a second document (---) is not allowed"),
    ("? [a]\n: b", "gad.yaml:1: a key must be a plain word"),
    ("a: " + "[" * 100_000, "gad.yaml:1: "),
    ("a: " + "{b: " * 40, "nested more than 16 deep"),
    ("model: \x07", "gad.yaml:1: not valid YAML"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[text[:30] for text, _ in MISTAKES])
def test_a_mistake_is_named_with_its_line_and_how_to_mend_it(tmp_path: Path, text: str, said: str) -> None:
    assert any(said in line for line in problems(tmp_path, text)), problems(tmp_path, text)


@pytest.mark.parametrize("text", ["models: {m: {chain: [gpt]}}", "models: {m: {chain: {a: b}}}"])
def test_a_wrong_chain_is_one_mistake(tmp_path: Path, text: str) -> None:
    assert len(problems(tmp_path, text)) == 1


def test_a_chain_is_an_entry_that_models_and_tasks_can_name(tmp_path: Path) -> None:
    found = load(tmp_path, "model: main\nmodels:\n  main: {chain: [mine, gpt]}\n  mine: {provider: openai, model: m}")
    assert (found.model, found.chain_of("main"), found.chain_of("gpt")) == ("main", ("mine", "gpt"), ("gpt",))
    assert found.chain_of("removed since") == ("removed since",)
    assert found.source("models.main.chain") == "gad.yaml:3"
    assert parse_task("model: main", models=found.models).model == "main"
    assert load(tmp_path, "models: {main: {chain: 'claude, gpt'}}").chain_of("main") == ("claude", "gpt")
    with pytest.raises(ConfigError, match="did you mean main"):
        parse_task("model: mainn", models=found.models)


@pytest.mark.parametrize(
    ("entry", "tokens"),
    [
        ("{provider: openai, model: m}", 30_000),
        ("{provider: openai, model: m, window: 50_000}", 50_000),
        ("{provider: openai, model: m, context: 200000}", 30_000),
        ("{provider: openai, model: m, context: 32768}", 32_768 - 8192),
        ("{provider: anthropic, model: m, context: 20000, max_tokens: 10000, window: 15000}", 10_000),
        ("{provider: anthropic, model: m, context: 20000, max_tokens: 10000, window: 5000}", 5000),
        ("{provider: local, model: m}", 16_384 - 8192 - 512),
        ("{provider: local, model: m, context: 8000, max_tokens: 1000}", 8000 - 1000 - 512),
        ("{provider: local, model: m, context: 64000, max_tokens: 4000}", 64_000 - 4000 - 512),
        ("{provider: local, model: m, context: 8000, max_tokens: 1000, window: 9000}", 7000),
    ],
)
def test_how_many_tokens_a_request_may_take(tmp_path: Path, entry: str, tokens: int) -> None:
    found = load(tmp_path, f"models: {{m: {entry}, both: {{chain: [claude, m]}}}}")
    assert found.window_of("m") == tokens
    assert found.window_of("both") == min(30_000, tokens)


def test_the_windows_of_the_built_in_models(tmp_path: Path) -> None:
    found = load(tmp_path, "")
    assert [found.window_of(name) for name in NAMES] == [30_000, 30_000, 13_824]


def test_all_mistakes_are_told_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    found = problems(tmp_path, "sessions: 0\nask: me\nlimits: {turns: x}\nmodel: nope\n")
    assert [line.split(":")[1] for line in found] == ["1", "2", "3", "4"]


def test_a_key_that_was_put_where_its_name_belongs_is_not_repeated(tmp_path: Path) -> None:
    found = problems(tmp_path, "models: {claude: {key_env: sk-ant-secret}}")
    assert "never the key itself" in found[0]
    assert "secret" not in found[0]


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "gad.yaml").write_bytes(b"model: \xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 7"):
        config.load(tmp_path, {})


@pytest.mark.parametrize(
    ("environ", "name", "source"),
    [
        ({"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b"}, "claude", "environment ANTHROPIC_API_KEY"),
        ({"OPENAI_API_KEY": "b"}, "gpt", "environment OPENAI_API_KEY"),
        ({"ANTHROPIC_API_KEY": ""}, "local", "default"),
    ],
)
def test_the_model_is_chosen_by_the_keys_that_are_there(
    tmp_path: Path, environ: dict[str, str], name: str, source: str
) -> None:
    found = load(tmp_path, "", **environ)
    assert (found.model, found.source("model")) == (name, source)
    assert load(tmp_path, "model: local", **environ).model == "local"


def test_a_vendor_s_key_does_not_go_to_another_server_by_itself(tmp_path: Path) -> None:
    found = load(tmp_path, "models: {gpt: {base_url: 'http://other/v1'}}").models["gpt"]
    assert (found.key_env, found.api) == (None, "chat")
    kept = load(tmp_path, "models: {gpt: {base_url: 'http://other/v1', key_env: OPENAI_API_KEY, api: responses}}")
    assert (kept.models["gpt"].key_env, kept.models["gpt"].api) == ("OPENAI_API_KEY", "responses")
    # Who sets the vendor's own variables means that server with that key.
    meant = load(tmp_path, "", OPENAI_BASE_URL="http://proxy/v1")
    assert (meant.models["gpt"].base_url, meant.models["gpt"].key_env) == ("http://proxy/v1", "OPENAI_API_KEY")
    assert meant.source("models.gpt.base_url") == "environment OPENAI_BASE_URL"


def test_an_entry_of_a_built_in_name_is_merged_unless_it_is_another_vendor_s(tmp_path: Path) -> None:
    merged = load(tmp_path, "models: {claude: {model: claude-opus-5-5}}").models["claude"]
    assert merged == dataclasses.replace(config.BUILT_IN["claude"], model="claude-opus-5-5")
    anew = load(tmp_path, "models: {claude: {provider: openai, model: m}}").models["claude"]
    assert (anew.model, anew.max_tokens, anew.key_env) == ("m", 8192, "OPENAI_API_KEY")


def test_a_key_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    entry = config.BUILT_IN["claude"]
    assert config.read_key(entry, {"ANTHROPIC_API_KEY": "k"}) == "k"
    assert config.read_key(entry, {}) is None
    (tmp_path / "key").write_text("from-file\n")
    in_file = dataclasses.replace(entry, key_env=None, key_file=str(tmp_path / "key"))
    assert config.read_key(in_file, {}) == "from-file"
    with pytest.raises(ConfigError, match=r"key_file: .* cannot be read: No such file"):
        config.read_key(dataclasses.replace(in_file, key_file=str(tmp_path / "none")), {})


def test_the_home_is_named_or_found_upward(tmp_path: Path) -> None:
    make_home(tmp_path / "home")
    inner = tmp_path / "home" / "a" / "b"
    inner.mkdir(parents=True)
    assert find_home(inner, {}) == tmp_path / "home"
    assert find_home(tmp_path, {"GAD_HOME": str(tmp_path / "home")}) == tmp_path / "home"
    with pytest.raises(HomeNotFound, match="gad init"):
        find_home(tmp_path, {})
    with pytest.raises(HomeNotFound, match="gad init"):
        find_home(inner, {"GAD_HOME": str(tmp_path)})


def test_a_home_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    assert make_home(tmp_path)
    (tmp_path / "gad.yaml").write_text("model: gpt")
    (tmp_path / "work").rmdir()
    assert not make_home(tmp_path)
    assert (tmp_path / "gad.yaml").read_text() == "model: gpt"
    assert (tmp_path / "work").is_dir()


TASKS: list[tuple[str, TaskOptions]] = [
    ("", TaskOptions()),
    ("# only words\n", TaskOptions()),
    ("model:\n", TaskOptions()),
    ("model: gpt", TaskOptions(model="gpt")),
    ("check: true", TaskOptions(check="true")),
    ("tools: [file_read, code_run]", TaskOptions(tools=("file_read", "code_run"))),
    ("tools: file_read, code_run", TaskOptions(tools=("file_read", "code_run"))),
    ('"turns": "3"\n"usd": "0.5"', TaskOptions(turns=3, usd=0.5)),
    ("seconds: 2h\ntokens: 5", TaskOptions(seconds=7200, tokens=5)),
    ("memory: off\nask: never", TaskOptions(memory=False, ask="never")),
    ("not_before: 2026-11-30T06:12:00Z", TaskOptions(not_before=1796019120)),
    ("not_before: 2026-11-30 08:12:00+02:00", TaskOptions(not_before=1796019120)),
    ("not_before: 1796019120.5", TaskOptions(not_before=1796019120.5)),
    (
        "priority: -3\nparent: 20261130-a\nlabels: [a, b]",
        TaskOptions(priority=-3, parent="20261130-a", labels=("a", "b")),
    ),
    ("cwd: /tmp/../tmp", TaskOptions(cwd="/tmp")),
]


@pytest.mark.parametrize(("text", "options"), TASKS, ids=[text or "empty" for text, _ in TASKS])
def test_a_task_file_is_read(text: str, options: TaskOptions) -> None:
    assert parse_task(text, models=NAMES) == options


def test_a_cwd_can_begin_with_the_user_s_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_task("cwd: ~/x", models=NAMES).cwd == str(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("turns: 0\nusd: x", "task.yaml:1: turns: must be a whole number"),
        ("turns: 0\nusd: x", "task.yaml:2: usd: must be US dollars"),
        ("chek: x", "chek: unknown key; did you mean check?"),
        ("model: gtp", "no entry of gad.yaml's models is called 'gtp'; did you mean gpt?"),
        ("tools: file_raed", "there is no tool 'file_raed'; did you mean file_read?"),
        ("cwd: here", "cwd: must be an absolute path or begin with ~/, not 'here'"),
        ("cwd: ~nobody-of-this-name/x", "must be an absolute path"),
        ("not_before: 2026-11-30 06:12", "has no time zone"),
        ("not_before: nan", "must be a time such as"),
        ("not_before: tomorrow", "must be a time such as"),
        ("parent: ../x", "parent: must be a session's name"),
        ("check: ''", "check: must not be empty"),
        ("a: &x [1]\nb: [*x, *x]", "an alias (*x) is not allowed"),
        ("just words", "must be `key: value` lines, not 'just words'"),
        ("turns: !!python/object:os.system 3\nx: 1", "x: unknown key"),
        ("\ud800", "not valid YAML"),
    ],
)
def test_a_task_file_s_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_task(text, models=NAMES)
    assert said in str(found.value)


@given(st.text() | st.text(alphabet="ab:-[]{},&*!|>'\"%@`# \n\t?0"))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    try:
        parse_task(text, models=NAMES)
    except ConfigError as exc:
        assert all(line.startswith("task.yaml:") for line in str(exc).splitlines())


def test_a_task_s_directory_must_be_there(tmp_path: Path) -> None:
    check_cwd(TaskOptions(cwd=str(tmp_path)))
    check_cwd(TaskOptions())
    with pytest.raises(ConfigError, match="is not a directory"):
        check_cwd(TaskOptions(cwd=str(tmp_path / "none")))


PRICE = Price(2.0, 10.0, cached=0.2, cache_write=2.5, above=1_000_000, above_input=2.0, above_output=1.5)


@pytest.mark.parametrize(
    ("usage", "price", "usd"),
    [
        (Usage(1_000_000, 100_000), PRICE, 3.0),
        (Usage(1_000_000, 0, cached=500_000, cache_write=100_000), PRICE, 0.8 + 0.1 + 0.25),
        (Usage(2_000_000, 100_000), PRICE, 8.0 + 1.5),
        (Usage(1_000_000, 0, cached=1_000_000), Price(2.0, 10.0), 2.0),
        (Usage(1_000_000, 1_000_000), FREE, 0.0),
        (Usage(1, 1), None, None),
    ],
)
def test_what_a_request_costs(usage: Usage, price: Price | None, usd: float | None) -> None:
    assert cost_usd(usage, price) == (None if usd is None else pytest.approx(usd))


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("claude-haiku-4-5", "claude-haiku-4-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-sonnet-5-5-latest", "claude-sonnet-5-5"),
        ("gpt-6-sol-2026-09-22", "gpt-6-sol"),
        ("gpt-6-sol-mini", None),
        ("claude-sonnet-5-7", None),
        ("my-model", None),
    ],
)
def test_a_price_is_found_for_a_model_and_its_snapshots_alone(model: str, entry: str | None) -> None:
    assert find_price(SHIPPED, model) == (SHIPPED[entry] if entry else None)


def test_what_an_entry_s_answers_cost(tmp_path: Path) -> None:
    found = load(tmp_path, "models: {other: {provider: openai, model: who-knows}}")
    assert found.price_of(found.models["local"], "anything") == FREE
    assert found.price_of(found.models["claude"], "claude-opus-5-5") == SHIPPED["claude-opus-5-5"]
    assert found.price_of(found.models["claude"]) == SHIPPED[config.BUILT_IN["claude"].model]
    assert found.price_of(found.models["other"]) is None
    for name in ("claude", "gpt"):
        assert config.BUILT_IN[name].model in SHIPPED
