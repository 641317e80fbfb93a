"""Decides from a name whether its value is a secret."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_ENDINGS = ("password", "passwords", "passwd", "passphrase", "passcode", "secret", "secrets")
"""Endings of the last word that always mean a secret, as in ``dbpassword``."""

_SECRET = re.compile(
    r"credentials?|creds|cookies?|authorization|dsn|bearer|apikeys?|pwd|secretkey|privatekey"
    r"|accesskey|authkey"
)
_SECRET_KEY_PREFIX = re.compile(
    r"api|secret|private|access|auth|signing|encryption|master|ssh|account|storage|deploy|service"
    r"|license|shared|session|consumer|app|subscription|rsa|pgp|gpg|hmac|jwt"
)
_SECRET_AFTER = {
    "key": _SECRET_KEY_PREFIX,
    "keys": _SECRET_KEY_PREFIX,
    "pass": re.compile(
        r"user|db|database|s?ftps?|smtps?|imaps?|e?mail|ssh|https?|proxy|mysql|postgres|postgresql"
        r"|pg|sql|mongo|mongodb|redis|ldap|mqtt|amqp|kafka|broker|server|connection|conn|auth|root"
        r"|admin|login|account|notify"
    ),
    "auth": re.compile(r"basic|http|proxy|npm|digest"),
    "string": re.compile(r"connection"),
    "url": re.compile(r"webhook"),
}
"""By the last word: the words before it that make it a secret, such as ``api`` for ``key``."""

_TEXT_TOKEN_PREFIX = re.compile(
    r"pad|eos|bos|sos|unk|sep|cls|mask|per|first|last|next|prev|previous|start|end|special|image"
    r"|audio|video|text|prompt|num|max|min|stop|begin|class|dist|reg|register|added|new|fake|blank"
    r"|target|input|output|latent|padding|query|each|every|single|average|mean|prefix|suffix"
    r"|middle|sink|patch|word|sub|subword|summary|visual|current|predicted|sampled|generated"
)
"""Words before ``token`` that mean a piece of text and not a credential."""

_IGNORED_WORDS = frozenset(("value", "text", "raw", "hex", "header", "hash", "plain"))
"""Last words that are ignored, as in ``password_hash``."""

_FOLDERS = frozenset(("PWD", "OLDPWD"))
_FILE = re.compile(r"/|\.(?:pyi?|ya?ml|toml|json|txt|md|csv|ini|cfg|sh|ipynb)$")
"""Characters of file names and metrics, which are not settings."""


_LOGINS = frozenset(("user", "username", "login", "account", "host", "hostname", "server"))
"""Sibling keys that make ``pass`` a password."""


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of ``name`` is a secret: ``api_key``, but not ``key_dim``.

    ``name`` may be a config key, an option, a header or an environment variable. In a dotted key,
    the last part decides, or an earlier part that means secrets only, such as ``credentials``,
    or a connection, as in ``smtp.pass``.
    """
    if name in _FOLDERS or _FILE.search(name):
        return False
    parts = _split_dotted(name)
    return _is_always_secret(parts) or _is_token(parts[-1])


def is_token_name(name: str) -> bool:
    """Whether a secret name may also mean a piece of text, such as ``token``."""
    return is_secret_name(name) and not _is_always_secret(_split_dotted(name))


def is_login_name(name: str) -> bool:
    """Whether a name belongs to a connection, so that a sibling ``pass`` is a password."""
    return "".join(_split(name)[-2:]) in _LOGINS or _split(name)[-1:] == ["user"]


def _split_dotted(name: str) -> list[list[str]]:
    """The words of each part of a dotted name, without list indices."""
    return [_split(part) for part in name.split(".") if not part.isdigit()] or [[]]


def _split(part: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(part)]
    while words and (words[-1].isdigit() or (len(words) > 1 and words[-1] in _IGNORED_WORDS)):
        words.pop()
    return words


def _is_always_secret(parts: list[list[str]]) -> bool:
    is_pass = len(parts) > 1 and parts[-1] == ["pass"] and parts[-2]
    return any(map(_ends_secret, parts)) or bool(is_pass and _ends_secret([*parts[-2], "pass"]))


def _ends_secret(words: list[str]) -> bool:
    if not words:
        return False
    *before, last = words
    if last.endswith(_ENDINGS) or _SECRET.fullmatch(last) or words[-3:] == ["access", "key", "id"]:
        return True
    pattern = _SECRET_AFTER.get(last)
    return pattern is not None and bool(before) and pattern.fullmatch(before[-1]) is not None


def _is_token(words: list[str]) -> bool:
    if not words or not words[-1].endswith("token"):
        return False
    if words[-1] != "token":
        return words[-1] in ("authtoken", "accesstoken", "apitoken", "refreshtoken")
    return len(words) == 1 or _TEXT_TOKEN_PREFIX.fullmatch(words[-2]) is None
