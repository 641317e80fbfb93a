"""Redacts secrets in text: known values, token formats, and values of secret names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, final

from epochal.config.scalar import REDACTED
from epochal.records.secrets import token_formats as formats
from epochal.records.secrets.process_secrets import get_secret_patterns
from epochal.records.secrets.secret_names import is_secret_name, is_token_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.records.secrets.process_secrets import SecretPattern

_MAX_PASSES = 8
_PLAIN = re.compile(r"[\w ./]{0,14}")
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

_SET = re.compile(
    r"(?:(?<![\w.])(?:export|setx?|setenv|declare -x|%env|%set_env|ENV|ARG|-e|--env)[ \t=]+|!)\Z"
)
"""Commands that set an environment variable."""

_COMMENT = re.compile(r"(?<!\S)(?:#|//)")
_RANDOM_LOOKING = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z]).{6,}")
_DESCRIPTIVE_WORD = re.compile(
    r"[a-z_]\w*(?:\.[a-z_]\w*)+|(?:u?int|b?float|complex|sha|md|base|utf|iso|ascii)[-_]?\d+\S*",
    re.IGNORECASE,
)
"""Values in comments that describe a secret: an attribute, a type, or a hash."""

_LOGIN = re.compile(
    r"(?<![A-Za-z])(?:user|user_?name|login|account|host|host_?name|server|smtp|database|db)"
    r"(?:[\"']?\]?[ \t]*[:=]|\])|--(?:user|login|host)",
    re.IGNORECASE,
)
_NEAR = 160
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
    if _PLAIN.fullmatch(text):
        return text
    if "PRIVATE KEY" in text:
        text = formats.PRIVATE_KEY.sub(rf"\g<1>{REDACTED}\g<3>", text)
    for hint, pattern in formats.TOKENS:
        if hint in text:
            text = pattern.sub(REDACTED, text)
    for hint, pattern in formats.PREFIXED_TOKENS:
        if hint in text:
            text = pattern.sub(rf"\g<1>{REDACTED}", text)
    if "://" in text:
        text = formats.NOTICE_URL.sub(rf"\g<1>{REDACTED}", text)
        text = formats.URL_USER.sub(_without_user, text) if "@" in text else text
    if "=" in text:
        text = formats.URL_QUERY.sub(_without_value, text)
    return _redact_named(text, rules)


def _without_user(match: re.Match[str]) -> str:
    is_name = match["scheme"].lower() in formats.USER_SCHEMES and not match["password"]
    user = match["user"]
    is_empty = not user or (REDACTED not in user and is_placeholder(user))
    return match[0] if is_name or is_empty else f"{match['scheme']}://{REDACTED}@"


def _without_value(match: re.Match[str]) -> str:
    name = match["name"]
    is_secret = formats.SIGNED_URL_PARAMETERS.fullmatch(name) is not None or is_secret_name(name)
    if not is_secret or is_placeholder(match["value"]):
        return match[0]
    return f"{name}={REDACTED}"


def _redact_named(text: str, rules: _TextKind) -> str:
    pieces, at, seen = [], 0, 0
    for term in _find_terms(text):
        if term.start() < seen:  # inside a name or value that was handled
            continue
        start = term.start() - _len_name(text[max(at, term.start() - 80) : term.start()][::-1])
        end = term.end() + _len_name(text[term.end() : term.end() + 200])
        name, seen = text[start:end], end
        if not (is_secret_name(name.strip("-.")) or _is_pass(text, start, end)):
            continue
        found = _find_value(text, start, end, rules)
        if found is not None:
            pieces += [text[at : found[0]], found[2]]
            at = seen = found[1]
    return "".join([*pieces, text[at:]]) if pieces else text


def _len_name(text: str) -> int:
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
    before = _LOGIN.search(text, max(0, start - _NEAR), start)
    return bool(before or _LOGIN.search(text, end, end + _NEAR))


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
        or (is_bare and _is_same(value, name))
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


def _is_same(value: str, name: str) -> bool:
    """Whether a name is assigned a variable of the same name."""
    return value == name.rpartition(".")[2]


def _match_value(
    text: str, start: int, end: int, rules: _TextKind
) -> tuple[re.Match[str] | None, bool]:
    """The value after a name, and whether a command sets it as an environment variable."""
    name = text[start:end]
    is_set = _SET.search(text, max(0, start - 16), start) is not None
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
    is_made = (
        _RANDOM_LOOKING.fullmatch(value) is not None and _DESCRIPTIVE_WORD.fullmatch(value) is None
    )
    is_statement = text[match.end() : match.end() + 1] == ";"
    return is_made and not is_statement and (is_set or rules.is_page or _is_comment(text, start))


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
