"""Tests of epochal.records.secrets.text_redaction."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from hypothesis import assume, example, given
from hypothesis import strategies as st

from canaries import LOOK_ALIKES, TOKENS
from epochal.records.secrets import REDACTED, hiding_secrets, redact
from records.secrets.test_secret_names import SECRET

if TYPE_CHECKING:
    import pytest

CANARY = "Zq7canary42"


def test_secrets_are_recognised_by_their_context() -> None:
    for text in [
        f"password={CANARY}",
        f"password: {CANARY}",
        f"  api_key: {CANARY}  # mine",
        f'{{"api_key": "{CANARY}"}}',
        f"{{'apiKey': '{CANARY}'}}",
        f'{{\\"api_key\\": \\"{CANARY}\\"}}',
        f'client_secret = "{CANARY}"',
        f'self.password: str = "{CANARY}"',
        f"connect(password='{CANARY}', port=3)",
        f"--token {CANARY} --other 3",
        f"--api-key={CANARY}",
        f"['--token', '{CANARY}']",
        f"export DB_PASSWORD={CANARY}",
        f"+  secret: {CANARY}",
        f"Authorization: Bearer {CANARY}",
        f"Authorization: Custom {CANARY} and {CANARY}",
        f"'Authorization': 'Basic {CANARY}'",
        f"Bearer {CANARY}{CANARY}",
        f"Cookie: a={CANARY}; b={CANARY}",
        f"Set-Cookie: sid={CANARY}; Path=/",
        f"https://me:{CANARY}@host.org/x",
        f"https://{CANARY}@host.org/x",
        f"postgresql://me:{CANARY}@db:5432/x",
        f"postgres://me:a/{CANARY}@db/x",
        f"redis://:{CANARY}@db:6379/0",
        f"https://me:p@{CANARY}@host/x",
        f"https://s3/x?X-Amz-Signature={CANARY}&X-Amz-Date=2",
        f"https://blob/x?sv=2&sig={CANARY}",
        f"https://h/x?access_token={CANARY}#top",
        f"https://hooks.slack.com/services/T0/B0/{CANARY}",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={CANARY}",
        f"https://open.feishu.cn/open-apis/bot/v2/hook/{CANARY}",
        f"tgram://{CANARY}/123",
        f"machine api.wandb.ai login user password {CANARY}",
        f"DefaultEndpointsProtocol=https;AccountKey={CANARY};EndpointSuffix=x",
        f"Server=db;Uid=me;Pwd={CANARY};",
        f"${{TOKEN:-{CANARY}}}",
        f"ENV API_KEY {CANARY}",
        f"setenv HF_TOKEN {CANARY}",
        f"smtp:\n  host: mail.org\n  pass: {CANARY}",
        f"pass: {CANARY}\nuser: me",
        f'{{"user": "me", "pass": "{CANARY}"}}',
        f"[smtp]\nport = 25\npass = {CANARY}",
        f"--user me --pass {CANARY}",
        f"smtp.pass={CANARY}",
    ]:
        clean = redact(text)
        assert CANARY not in clean
        assert REDACTED in clean
        assert redact(clean) == clean


def test_the_rest_of_a_line_stays_readable() -> None:
    assert (
        redact(f"connect(password='{CANARY}', port=3)") == f"connect(password='{REDACTED}', port=3)"
    )
    assert redact(f"https://me:{CANARY}@host.org/x?a=1") == f"https://{REDACTED}@host.org/x?a=1"
    assert redact(f"password: {CANARY}  # mine") == f"password: {REDACTED}  # mine"


def test_a_number_keeps_json_valid() -> None:
    assert redact('{"password": 123456}') == f'{{"password": "{REDACTED}"}}'


PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"


def test_a_private_key_is_redacted_completely() -> None:
    for newline in ["\n", "\\n", "\n+", "\n    "]:
        body = ("MIIEow" + "IBAAKCAQEA" * 6 + "\n") * 3
        clean = redact(f"key = {PEM.format(body)}; done".replace("\n", newline))
        assert "MIIEow" not in clean
        assert clean.endswith("; done")


def test_a_private_key_without_its_end_is_redacted() -> None:
    body = ("MIIEow" + "IBAAKCAQEA" * 6 + "\n") * 3
    clean = redact("-----BEGIN OPENSSH PRIVATE KEY-----\n" + body)
    assert "MIIEow" not in clean


def test_text_without_secrets_is_unchanged() -> None:
    for text in [
        "password: ${env:DB_PASSWORD}",
        "password = None",
        "token: str",
        "def login(password: str, token: str | None = None) -> None:",
        "password = getpass()",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "token = tokens[i]",
        "token=token",
        "if token == other:",
        'f"Bearer {token}"',
        "Basic training of a model",
        "pad_token: <pad>",
        "token: 5",
        "the password is asked for later",
        "Token indices sequence length is longer than 512",
        "http://host:8080/path@v1",
        "ssh://git@github.com/me/x.git",
        "git@github.com:me/x.git",
        "mail me@host.org",
        "https://host/x?page=2&key=size",
        "sk-learn-contrib-something-very-long",
        "task-sk-and-more-words-in-a-row",
        "commit 8792c91aa0b1c2d3e4f5061728394a5b6c7d8e9f",
        "12:30:05 step 100000000: loss 0.25",
        "std::string token::name",
        "secret: <redacted>",
        "token: [MASK]",
        "https://me:${env:PASSWORD}@host/x",
        "https://{user}:{password}@host/x",
        'if [ "$token" = other ]; then',
        "TOKEN=${TOKEN:-}",
        "if user: pass",
        "pass: first\nstep: 3",
        "host: here\npass: 3",
        "forward.pass=train",
        'API_KEY = "WANDB_API_KEY"',
        "token: HF_TOKEN",
    ]:
        assert redact(text) == text


def test_unquoted_values_in_code_are_unchanged() -> None:
    code = "token = word\npassword: Secret = default\nis_gone(token='boot:1')\n"
    assert redact(code, is_code=True) == code
    assert CANARY not in redact(f'password = "{CANARY}"\n', is_code=True)


def test_secrets_in_comments_and_commands_of_code_are_redacted() -> None:
    for code in [
        "# api_key: {}",
        "x = '#'  # password = {}",
        "// token: {}",
        "os.system('docker run -e API_KEY={} image')",
        '    "# token: {}\\n",',
        '    "x = 1  # token: {}\\n",',
        '    "%env HF_TOKEN={}\\n",',
        '    "!HF_TOKEN={} python x.py\\n",',
        '    "!export TOKEN={}\\n",',
    ]:
        clean = redact(code.format(CANARY), is_code=True)
        assert clean == code.format(REDACTED)
        assert redact(clean, is_code=True) == clean


def test_code_without_secrets_is_unchanged() -> None:
    for code in [
        "token = tokenizer.next()",
        "token = tokens42",
        "password = getpass()",
        "password = getpass.getpass",
        'if sign == "#": token = word2vec',
        "  #token = token12;",
        "def f(token=word12): ...  # a token",
        "# token: int64 ids",
        "# secret: sha256 of the rest",
        "# api_key = config.api_key2",
        "# the password: asked for later",
        "x = y //token: z",
        "user = login(pass_=word12)",
        'headers["Authorization"] = "Bearer " + token',
        'headers["Authorization"] = "Basic %s" % word',
        "headers = {'Authorization': f'Bearer {auth.token().text}'}",
        'secret = "/".join(parts)',
        'PASSWORD = "password"',
        'KEYS = {"s3.secret-access-key": "aws_secret_access_key"}',
        'def f(token: "Token | None" = None, secret: "Optional[Secret]" = None): ...',
        'def f(credentials: "google.auth.credentials.Credentials"): ...',
        'api_key = "{{secrets/my_scope/my_key}}"',
    ]:
        assert redact(code, is_code=True) == code


def test_quoted_secrets_in_code_are_redacted() -> None:
    for value in ["hunter2", "correct horse", "Bearer abcd1234", "a.b-c", "p@ss"]:
        for code in ('password = "{}"', "f(client_secret='{}')", 'x = {{"Authorization": "{}"}}'):
            assert value not in redact(code.format(value), is_code=True)


def test_random_values_on_a_page_with_code_are_redacted() -> None:
    page = "password: yours\ntoken = tokenizer.next()\napi_key: {}\n"
    assert redact(page.format(CANARY), is_page=True) == page.format(REDACTED)


def test_comments_about_look_alikes_are_unchanged() -> None:
    for form in ["# {}: {}", "export {}={}", "x = 1  # {} = {}"]:
        text = "\n".join(form.format(name, CANARY) for name in LOOK_ALIKES)
        assert redact(text, is_code=True) == text


def test_values_of_look_alikes_are_unchanged() -> None:
    for name in LOOK_ALIKES:
        for form in ["{}: {}", "{} = '{}'", "--{} {}", '{{"{}": "{}"}}']:
            text = form.format(name, CANARY)
            assert redact(text) == text


def test_values_of_secret_names_are_redacted() -> None:
    for name in [name for name in SECRET if "." not in name]:
        assert CANARY not in redact(f"{name}={CANARY}")


def test_secrets_of_the_environment_are_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", 'pa ss"wörd/42')
    assert redact('ValueError: pa ss"wörd/42 is wrong') == f"ValueError: {REDACTED} is wrong"
    assert "42" not in redact("GET /x?q=pa%20ss%22w%C3%B6rd%2F42")
    assert "42" not in redact('"pa ss\\"w\\u00f6rd/42"')


def test_a_word_in_the_environment_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ["hunter2", "password", ""]:
        monkeypatch.setenv("MY_PASSWORD", value)
        assert redact(f"the word {value} is here") == f"the word {value} is here"


def test_a_file_that_the_environment_names_is_no_secret(monkeypatch, tmp_path) -> None:
    path = tmp_path / "account.json"
    path.touch()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    assert redact(f"read {path}") == f"read {path}"


def test_hidden_values_are_redacted_during_the_block() -> None:
    with hiding_secrets(["hunter2", "long enough", "abc"]), hiding_secrets(["hunter2"]):
        assert (
            redact("hunter2, xhunter2x, long enough, abc")
            == f"{REDACTED}, xhunter2x, {REDACTED}, abc"
        )
    assert redact("hunter2") == "hunter2"


SIGNS = [
    *"= \n\"',@:?&\\(){}[]5#$",
    "// ",
    "export ",
    "pass",
    "user: ",
    "://",
    "https://",
    "--",
    "Bearer ",
    "${env:X}",
    "a/b",
    "None",
]
KEYS = ["-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"]
WORDS = st.sampled_from([*LOOK_ALIKES, *SECRET, *TOKENS.values(), *SIGNS, *KEYS, REDACTED, CANARY])


@given(
    st.lists(st.one_of(WORDS, st.text(st.characters(), max_size=4)), max_size=14).map("".join),
    st.sampled_from([{}, {"is_code": True}, {"is_page": True}]),
)
def test_redaction_is_idempotent(text: str, rules: dict[str, bool]) -> None:
    with hiding_secrets([CANARY]):
        once = redact(text, **rules)
        assert redact(once, **rules) == once


@given(st.text(st.characters(), min_size=6, max_size=12), st.text(max_size=4), st.text(max_size=4))
@example("0000000\ud800", "", "")
def test_any_hidden_text_is_redacted(value: str, before: str, after: str) -> None:
    assume(len(value.strip()) >= 8)
    text = f"{before} {value} {after}"
    with hiding_secrets([value]):
        clean = redact(text)
        assert REDACTED in clean
        assert value not in clean
        assert redact(clean) == clean


NAMES = st.sampled_from(LOOK_ALIKES)
VALUES = st.one_of(
    st.text(string.ascii_lowercase + " _", max_size=20),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["None", "true", "[1, 2]", "resnet-50", "/data/x.bin", "https://host/a?b=c"]),
)
LINES = st.tuples(NAMES, st.sampled_from([": ", "=", " = ", " "]), VALUES).map("".join)


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_random_text_without_secrets_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_repetitive_text_takes_linear_time() -> None:
    for piece in [
        *("http://", "http://a:", "key.-_", "password", "token: ", "--token ", "eyJaaaaaaaa."),
        *("sk-", "-----BEGIN PRIVATE KEY-----", "Bearer ", "a@b:c/", "token='{"),
        *("# token=a1 ", "pass: user ", "\\", "Zq7canary", "export TOKEN "),
    ]:
        # With the square of it, longer than a test may.
        line = piece * (60_000 // len(piece))
        with hiding_secrets([f"\\{CANARY} Zq7"]):
            assert redact(line)
            assert redact(line, is_code=True)


def test_a_line_of_a_megabyte_is_redacted() -> None:
    line = "step 1 of 3, num_tokens=77, token = [1, 2]; https://host/a?b=c " * 16_000
    with hiding_secrets([CANARY]):
        assert redact(line + CANARY) == line + REDACTED


def test_names_are_found_in_any_case() -> None:
    for before in ["", "İ" * 20, "ẞ" * 20]:
        for name in ["Password", "API_KEY", "authToken"]:
            assert redact(f"{before} {name}: Zq7canary42x") == f"{before} {name}: {REDACTED}"


def test_tokens_are_recognised_by_their_format() -> None:
    for kind, token in TOKENS.items():
        for around in ("{}", "failed with {}.", "'{}'", "a={}&b=1", "https://h/{}/x"):
            clean = redact(around.format(token))
            assert token not in clean, kind
            assert REDACTED in clean, kind
