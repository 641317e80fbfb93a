"""Redacts secrets in text: known values, token formats, and values of secret names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, final

from epochal.config.scalar import REDACTED
from epochal.records.secrets.process_secrets import get_secret_patterns
from epochal.records.secrets.secret_names import is_secret_name, is_token_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.records.secrets.process_secrets import SecretPattern

_TOKEN_START = r"(?<![A-Za-z0-9_])"
_DIGIT_AND_CAPITAL = r"(?=[\w-]*\d)(?=[\w-]*[A-Z])"
"""Requires a digit and a capital, which names of packages do not have together."""

_AFTER_BOT_ID = "|".join(rf"(?<=(?<![\d.:])\d{{{digits}}}:)" for digits in (8, 9, 10))
"""Looks back from a colon, which is ten times as fast as searching numbers."""

TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (hint, re.compile(start + pattern))
    for hint, start, pattern in (
        ("AKIA", _TOKEN_START, r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ASIA", _TOKEN_START, r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("AIza", _TOKEN_START, r"AIza[\w-]{35}"),
        ("ya29.", _TOKEN_START, r"ya29\.[\w-]{20,}"),
        ("GOCSPX-", _TOKEN_START, r"GOCSPX-[\w-]{20,}"),
        ("LTAI", _TOKEN_START, r"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9])"),
        ("AKID", _TOKEN_START, r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
        ("gh", _TOKEN_START, r"gh[pousr]_[A-Za-z0-9]{30,}"),
        ("github_pat_", _TOKEN_START, r"github_pat_\w{22,}"),
        ("gl", _TOKEN_START, r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas|imt|ffct)-[\w.-]{20,}"),
        ("xox", _TOKEN_START, r"xox[abceprs]-[\w-]{10,}"),
        ("xapp-", _TOKEN_START, r"xapp-[\w-]{10,}"),
        ("hf_", _TOKEN_START, r"hf_[A-Za-z0-9]{30,}"),
        ("api_org_", _TOKEN_START, r"api_org_[A-Za-z0-9]{30,}"),
        ("sk-", r"(?<![\w-])", _DIGIT_AND_CAPITAL + r"sk-[\w-]{20,}"),
        ("gsk_", _TOKEN_START, r"gsk_[A-Za-z0-9]{40,}"),
        ("xai-", r"(?<![\w-])", r"xai-[A-Za-z0-9]{40,}"),
        ("r8_", _TOKEN_START, r"r8_[A-Za-z0-9]{37}"),
        ("nvapi-", _TOKEN_START, r"nvapi-[\w-]{40,}"),
        ("dapi", _TOKEN_START, r"dapi[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"),
        ("local-", r"(?<![\w-])", r"local-[0-9a-f]{40}(?![A-Za-z0-9])"),
        ("wandb_v", _TOKEN_START, r"wandb_v\d_[\w-]{20,}"),
        ("k_", _TOKEN_START, r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("npm_", _TOKEN_START, r"npm_[A-Za-z0-9]{36}"),
        ("pypi-", r"(?<![\w-])", r"pypi-[\w-]{50,}"),
        ("dckr_pat_", _TOKEN_START, r"dckr_pat_[\w-]{20,}"),
        ("_v1_", _TOKEN_START, r"do[opr]_v1_[a-f0-9]{64}"),
        ("SG.", _TOKEN_START, r"SG\.[\w-]{16,}\.[\w-]{16,}"),
        ("hvs.", _TOKEN_START, r"hvs\.[\w-]{24,}"),
        ("AGE-SECRET-KEY-1", "", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
        ("tskey-", _TOKEN_START, r"tskey-[\w-]{16,}"),
        ("key-", r"(?<![\w-])", r"key-[0-9a-f]{32}(?![A-Za-z0-9])"),
        ("sntrys_", _TOKEN_START, r"sntrys_[\w+/=-]{20,}"),
        ("glsa_", _TOKEN_START, r"glsa_\w{32,}"),
        ("eyJ", _TOKEN_START, r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
    )
)
"""A word for a fast check, and the pattern; the whole match is secret."""

PREFIXED_TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (hint, re.compile(pattern))
    for hint, pattern in (
        ("hooks.slack.com/", r"(hooks\.slack\.com/\w+/)(?!<)[\w/-]+"),
        ("/api/webhooks/", r"(discord(?:app)?\.com/api/webhooks/)(?!<)[\w/-]+"),
        ("/hook/", r"(open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/)(?!<)[\w-]+"),
        ("qyapi.weixin.qq.com", r"(qyapi\.weixin\.qq\.com/[^\s?\"'<>]*\?key=)(?!<)[\w-]+"),
        ("webhook.office.com", r"(webhook\.office\.com/)(?!<)[^\s\"'<>]+"),
        ("/bot", r"(api\.telegram\.org/bot)(?!<)[^\s/\"'<>]+"),
        ("earer", r"((?<!\w)[Bb]earer[ \t]+)(?=[^\s\"']*\d)[A-Za-z0-9+/._~=-]{12,}"),
        ("asic", r"((?<!\w)[Bb]asic[ \t]+)(?=[^\s\"']*[\d=])[A-Za-z0-9+/_-]{8,}={0,2}"),
        ("login", r"(login[ \t]+\S+\s+password[ \t]+)(?!<)\S+"),
        ("login", r"(wandb[\s\"',]+login[\s\"',]+(?:--\w+[\s\"',]+)*)[0-9a-f]{40}(?!\w)"),
        (":", rf"(:)(?:{_AFTER_BOT_ID})[A-Za-z0-9_-]{{35}}(?![\w-])"),
    )
)
"""The same for patterns whose first group is not secret."""

PRIVATE_KEY = re.compile(
    r"(-----BEGIN (?P<kind>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----)"
    r"(?:.{0,12000}?(-----END (?P=kind)-----)|(?:[^A-Za-z0-9+/=<]*[A-Za-z0-9+/=]{40,})+)",
    re.DOTALL,
)
"""A private key, even if its end is cut off."""

_HOST = r"(?=[A-Za-z0-9\[%$])"
URL_USER = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30})://"
    r"(?P<user>(?!\d+[/?#])(?:[^\s/?#\"'<>@:]|<redacted>){0,200}"
    r"(?P<password>:(?!\d{1,5}[/?#])(?:[^\s\"'<>]|<redacted>){0,400})?)@" + _HOST
)
"""``scheme://user:password@``; a password may contain characters that should be escaped."""

USER_SCHEMES = frozenset(("ssh", "sftp", "rsync", "git+ssh", "ssh+git", "scp"))
"""Schemes in which a user without a password is a name and not a token."""

NOTICE_URL = re.compile(
    r"(?<![\w+.-])((?:slack|discord|tgram|dingtalk|wecombot|feishu|lark|msteams|pover|pbul|gotify"
    r"s?|ntfys?|mmosts?|matrixs?|rockets?|mailtos?|sendgrid|mailgun|ifttt|bark|pushdeer|"
    r"serverchan|line|zulip|webexteams|workflow)://)(?!<)[^\s\"'<>]+"
)
"""Apprise URLs of messengers, which are mostly secret."""

URL_QUERY = re.compile(r"(?<=[?&;])(?P<name>[\w.%-]{1,80})=(?P<value>[^&#;\s\"'<>]+)")
SIGNED_URL_PARAMETERS = re.compile(
    r"sig|(?:x-(?:amz|goog|oss)-|q-)?(?:signature|credential)|x-(?:amz|cos)-security-token"
    r"|(?:aws|oss)accesskeyid|googleaccessid|policy|key-pair-id|hmac",
    re.IGNORECASE,
)
"""Parameters of signed URLs, which grant access until they expire."""


_MAX_PASSES = 8
_CANNOT_BE_SECRET = re.compile(r"[\w ./]{0,14}")
"""Texts too short for any token, without a sign between a name and a value."""

_SHORTEST_TOKEN = 16
"""A shorter quoted value of ``token`` in code is a word."""

_TERM = re.compile(  # lower case only: ignoring case takes ten times as long
    r"passw|passphrase|passcode|pass\b|pwd|secret|token|key|credential|creds|authorization"
    r"|cookie|dsn|bearer|auth\b|webhook|connection"
)
_ANY_TERM = re.compile(_TERM.pattern, re.IGNORECASE)
_NO_NAME = re.compile(r"[^\w.-]")
_QUOTED = (
    r"[rbfuRBFU]{0,2}(?P<quote>\\*(?:\"\"\"|'''|[\"']))"
    r"(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\]|\\))*)(?P=quote)"
)
_BARE = r"(?P<bare>[^\s\"'`,;&<>(){}\[\]\\|]++)(?![(\[{<])"
_ANNOTATION = r"(?:[ \t]*:[ \t]*[A-Za-z_][\w.\[\], |]{0,60}?(?=[ \t]*=))?"
_SIGN = r"[ \t]*(?:=>|:=|:-|=(?!=)|:(?!:|//|-\}|[?+]))[ \t]*"
_SCHEME = r"(?:(?:Bearer|Basic|Token|Digest|Negotiate|AWS4-HMAC-SHA256)[ \t]+)?"
_ASSIGNED = re.compile(
    rf"(?:\\*[\"'])?\]?{_ANNOTATION}{_SIGN}(?:{_QUOTED}|{_SCHEME}{_BARE})", re.IGNORECASE
)
_HEADER = re.compile(r"(?:\\*[\"'])?[ \t]*[:=][ \t]*(?P<bare>[^\s\"'\\<][^\r\n\"'\\<]*)")
_OPTION = re.compile(rf"(?:[\"'],)?[ \t]+(?:{_QUOTED}|(?P<bare>[^\s\"'`;&<>|-][^\s\"'`;&<>|]*))")
_HEADERS = ("authorization", "cookie")

_SET_VARIABLE = re.compile(
    r"(?:(?<![\w.])(?:export|setx?|setenv|declare -x|%env|%set_env|ENV|ARG|-e|--env)[ \t=]+|!)\Z"
)
"""Commands that set an environment variable."""

_LONGEST_WORD = 24
_SPACED_NAME = re.compile(r"(?<![\w.-])([A-Za-z]+)[ \t]([A-Za-z]+)\Z")
"""Two words before a value, as in ``api key: ...``."""

_TRIPLE_QUOTED = re.compile(
    r"#[^\n]*|(?:(?P<before>(?m:^)[ \t]*)[rRuU]?)?(?P<quote>\"\"\"|''')(?:\\.|.)*?(?P=quote)"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
"""Comments and strings of Python; ``before`` is set for triple-quoted ones that begin a line."""

_COMMENT = re.compile(r"(?<!\S)(?:#|//)")
_RANDOM_LOOKING = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z]).{6,}")
_DESCRIPTIVE_WORD = re.compile(
    r"[a-z_]\w*(?:\.[a-z_]\w*)+|\d{1,4}-[a-z]+"
    r"|(?:u?int|b?float|complex|sha|md|base|utf|iso|ascii)[-_]?\d+\S*",
    re.IGNORECASE,
)
"""Values in comments that describe a secret: an attribute, a type, or a hash."""

_LOGIN = re.compile(
    r"(?<![A-Za-z])(?:user|user_?name|login|account|host|host_?name|server|smtp|database|db)"
    r"(?:[\"']?\]?[ \t]*[:=]|\])|--(?:user|login|host)",
    re.IGNORECASE,
)
_LOGIN_DISTANCE = 160
"""Characters within which a user or host makes ``pass`` a password."""

_PLACEHOLDER = re.compile(
    r"|none|null|nil|true|false|~|yes|no|str|int|bytes|bool|float|any|string|object|optional"
    r"|[*x.•…]+|<.*>|\[[A-Z_]+\]|.*<redacted>.*|.*\$\{.*|\$\w+|\$\(.*|.*\{[\w.!:\[\]]*\}.*|%\(.*"
    r"|(?:self|cls|os|args|config|cfg|options|settings|env|process)\.[\w.]+",
    re.IGNORECASE | re.DOTALL,
)
"""Values that are never a secret."""

_NUMBER = re.compile(r"[-+]?[\d_]*\.?\d+(?:e[-+]?\d+)?", re.IGNORECASE)

_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_WORDS = re.compile(rf"{_VARIABLE.pattern}|[A-Za-z_]+(?:[.-][A-Za-z_]+)*")
_TEMPLATE = re.compile(
    r"\W{0,6}|(?:bearer|basic|token|oauth|cookie|digest)?\s*(?:%[sr].*|%\(.*|[^{}]*\{.*\}.*)?"
    r"|[A-Za-z_.]+(?:\[[\w., |\[\]]*\]|(?: \| [\w.\[\], ]+)+)|[A-Za-z_]+(?:\.[A-Za-z_]+){2,}",
    re.IGNORECASE | re.DOTALL,
)
"""Quoted texts in code that are templates, separators or types."""

_LONGEST_LINE = 400
"""Characters before a name in which the start of its line is searched."""


@final
@dataclass(frozen=True)
class _TextKind:
    """What values without quotes can be in a text: literals, or names and expressions."""

    is_code: bool = False
    is_page: bool = False


def redact(text: str, *, is_code: bool = False, is_page: bool = False) -> str:
    """``text`` with ``<redacted>`` in place of each secret.

    Secrets are recognised by their format, by the name before them, or because the environment
    or the config of this process has them. In code, the value of a name counts only if it is
    quoted or in a comment; on a page with code, also if it looks random.
    """
    rules = _TextKind(is_code=is_code or is_page, is_page=is_page)
    return _redact(text, get_secret_patterns(), rules)


def make_redactor() -> Callable[[str], str]:
    """``redact`` with the secrets that are known now, for many texts."""
    return partial(_redact, known=get_secret_patterns(), rules=_TextKind())


def is_placeholder(value: str) -> bool:
    """Whether a value is empty, a placeholder or a reference, and so no secret."""
    return _PLACEHOLDER.fullmatch(value.strip()) is not None


def _redact(text: str, known: tuple[SecretPattern, ...], rules: _TextKind) -> str:
    for _ in range(_MAX_PASSES):  # a replacement may join parts of another secret
        before, text = text, _redact_once(text, known, rules)
        if text == before:
            break
    return text


def _redact_once(text: str, known: tuple[SecretPattern, ...], rules: _TextKind) -> str:
    for secret in known:
        text = secret.replace(text, REDACTED)
    if _CANNOT_BE_SECRET.fullmatch(text):
        return text
    if "PRIVATE KEY" in text:
        text = PRIVATE_KEY.sub(rf"\g<1>{REDACTED}\g<3>", text)
    for hint, pattern in TOKENS:
        if hint in text:
            text = pattern.sub(REDACTED, text)
    for hint, pattern in PREFIXED_TOKENS:
        if hint in text:
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
    if "://" in text:
        text = NOTICE_URL.sub(rf"\g<1>{REDACTED}", text)
        text = URL_USER.sub(_without_user, text) if "@" in text else text
    if "=" in text:
        text = URL_QUERY.sub(_without_value, text)
    return _redact_named(text, rules)


def _without_user(match: re.Match[str]) -> str:
    is_name = match["scheme"].lower() in USER_SCHEMES and not match["password"]
    user = match["user"]
    is_empty = not user or (REDACTED not in user and is_placeholder(user))
    return match[0] if is_name or is_empty else f"{match['scheme']}://{REDACTED}@"


def _without_value(match: re.Match[str]) -> str:
    name = match["name"]
    is_secret = SIGNED_URL_PARAMETERS.fullmatch(name) is not None or is_secret_name(name)
    if not is_secret or is_placeholder(match["value"]):
        return match[0]
    return f"{name}={REDACTED}"


def _redact_named(text: str, rules: _TextKind) -> str:
    pieces, at, seen = [], 0, 0
    for term in _find_terms(text):
        if term.start() < seen:  # inside a name or value that is already redacted
            continue
        start = term.start() - _name_length(text[max(at, term.start() - 80) : term.start()][::-1])
        end = term.end() + _name_length(text[term.end() : term.end() + 200])
        name, seen = text[start:end], end
        if is_secret_name(name.strip("-.")) or _is_pass(text, start, end):
            found = _find_value(text, start, end, rules)
        elif spaced := _SPACED_NAME.search(text, max(at, start - _LONGEST_WORD), end):
            found = _find_spaced_value(text, spaced, rules)
        else:
            continue
        if found is not None:
            pieces += [text[at : found[0]], found[2]]
            at = seen = found[1]
    return "".join([*pieces, text[at:]]) if pieces else text


def _find_spaced_value(
    text: str, name: re.Match[str], rules: _TextKind
) -> tuple[int, int, str] | None:
    """The same as ``_find_value`` after ``api key``: in prose, so the value must look random."""
    match = _ASSIGNED.match(text, name.end())
    if match is None or not is_secret_name(f"{name[1]}_{name[2]}"):
        return None
    group = "quoted" if match["bare"] is None else "bare"
    value = match[group]
    shortest = _SHORTEST_TOKEN if rules.is_page else 0
    if is_placeholder(value) or not _looks_random(value) or len(value) < shortest:
        return None
    is_prose = not rules.is_code or rules.is_page or _is_prose(text, name.start())
    return (match.start(group), match.end(group), REDACTED) if is_prose else None


def _name_length(text: str) -> int:
    """The length of the name at the start of a text."""
    found = _NO_NAME.search(text)
    return len(text) if found is None else found.start()


def _find_terms(text: str) -> Iterator[re.Match[str]]:
    small = text.lower()
    # Some letters become two in lower case, and positions would shift.
    return _TERM.finditer(small) if len(small) == len(text) else _ANY_TERM.finditer(text)


def _is_pass(text: str, start: int, end: int) -> bool:
    """Whether a name is ``pass`` near a user or a host."""
    if text[start:end].strip("-.").lower() != "pass":
        return False
    before = _LOGIN.search(text, max(0, start - _LOGIN_DISTANCE), start)
    return bool(before or _LOGIN.search(text, end, end + _LOGIN_DISTANCE))


def _find_value(text: str, start: int, end: int, rules: _TextKind) -> tuple[int, int, str] | None:
    """Start, end and replacement of the secret after a name."""
    match, is_set = _match_value(text, start, end, rules)
    if match is None:
        return None
    name = text[start:end].strip("-.")
    is_bare = match["bare"] is not None
    group = "bare" if is_bare else "quoted"
    value = match[group]
    if (
        is_placeholder(value)
        or _is_reference_name(value, rules)
        or (is_bare and value == name.rpartition(".")[2])  # a variable of the same name
    ):
        return None
    if is_bare and not _is_literal_secret(match, start, rules, is_set=is_set):
        return None
    is_number = _NUMBER.fullmatch(value) is not None
    is_word = is_number or (rules.is_code and not is_bare and len(value) < _SHORTEST_TOKEN)
    if is_word and (is_token_name(name) or not is_secret_name(name)):
        return None
    # A number without quotes may be in JSON or TOML, which have no bare words.
    mark = f'"{REDACTED}"' if is_bare and is_number else REDACTED
    return match.start(group), match.end(group), mark


def _is_reference_name(value: str, rules: _TextKind) -> bool:
    """Whether a value is the name of a secret, such as ``HF_TOKEN``, or a template in code."""
    if rules.is_code and _TEMPLATE.fullmatch(value):
        return True
    pattern = _WORDS if rules.is_code else _VARIABLE
    return pattern.fullmatch(value) is not None and is_secret_name(value)


def _match_value(
    text: str, start: int, end: int, rules: _TextKind
) -> tuple[re.Match[str] | None, bool]:
    """The value after a name, and whether a command sets it as an environment variable."""
    name = text[start:end]
    is_set = _SET_VARIABLE.search(text, max(0, start - 16), start) is not None
    match = _ASSIGNED.match(text, end)
    if not rules.is_code and name.lower().endswith(_HEADERS):
        match = _HEADER.match(text, end) or match
    if match is None and (is_set or name.startswith("--")):
        match = _OPTION.match(text, end)
    return match, is_set


def _is_literal_secret(match: re.Match[str], start: int, rules: _TextKind, *, is_set: bool) -> bool:
    """Whether a value without quotes can be the secret itself, and not an expression."""
    text, value = match.string, match["bare"]
    if not rules.is_code:
        return text[start - 1 : start] != "$"  # a comparison in a shell
    is_statement = text[match.end() : match.end() + 1] == ";"
    if not _looks_random(value) or is_statement:
        return False
    if is_set or rules.is_page or _is_comment(text, start):
        return True
    # A docstring explains words, too: `token: <s1>` is not a secret.
    is_word = is_token_name(text[start : match.start()]) and len(value) < _SHORTEST_TOKEN
    return not is_word and _is_docstring(text, start)


def _looks_random(value: str) -> bool:
    """Whether a value has digits and letters, and is not a type name."""
    return (
        _RANDOM_LOOKING.fullmatch(value) is not None and _DESCRIPTIVE_WORD.fullmatch(value) is None
    )


def _is_prose(text: str, start: int) -> bool:
    """Whether a position in code is in a comment or a docstring."""
    return _is_comment(text, start) or _is_docstring(text, start)


def _is_docstring(text: str, start: int) -> bool:
    """Whether a position in code is in a string that is a statement of its own."""
    return any(first <= start < last for first, last in _find_docstrings(text))


@lru_cache(maxsize=2)  # a file has many names
def _find_docstrings(text: str) -> tuple[tuple[int, int], ...]:
    strings = _TRIPLE_QUOTED.finditer(text)
    return tuple((one.start(), one.end()) for one in strings if one["before"] is not None)


def _is_comment(text: str, start: int) -> bool:
    """Whether a position in code is in a comment."""
    first = max(0, start - _LONGEST_LINE)
    found = text.rfind("\n", first, start)
    if found < 0 < first:
        return False
    # A notebook quotes each of its lines.
    line = text[max(found + 1, first) : start].lstrip().removeprefix('"')
    for sign in _COMMENT.finditer(line):
        before = line[: sign.start()]
        if before.count('"') % 2 == before.count("'") % 2 == 0:
            return True
    return False
