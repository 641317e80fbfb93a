"""Formats of tokens, private keys, and URLs that contain secrets."""

from __future__ import annotations

import re

_START = r"(?<![A-Za-z0-9_])"
_DIGIT_AND_CAPITAL = r"(?=[\w-]*\d)(?=[\w-]*[A-Z])"
"""Requires a digit and a capital, which names of packages do not have together."""

_AFTER_NUMBER = "|".join(rf"(?<=(?<![\d.:])\d{{{digits}}}:)" for digits in (8, 9, 10))
"""Looks back from a colon, which is ten times as fast as searching numbers."""

TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (hint, re.compile(start + pattern))
    for hint, start, pattern in (
        ("AKIA", _START, r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ASIA", _START, r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("AIza", _START, r"AIza[\w-]{35}"),
        ("ya29.", _START, r"ya29\.[\w-]{20,}"),
        ("GOCSPX-", _START, r"GOCSPX-[\w-]{20,}"),
        ("LTAI", _START, r"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9])"),
        ("AKID", _START, r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
        ("gh", _START, r"gh[pousr]_[A-Za-z0-9]{30,}"),
        ("github_pat_", _START, r"github_pat_\w{22,}"),
        ("gl", _START, r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas|imt|ffct)-[\w.-]{20,}"),
        ("xox", _START, r"xox[abceprs]-[\w-]{10,}"),
        ("xapp-", _START, r"xapp-[\w-]{10,}"),
        ("hf_", _START, r"hf_[A-Za-z0-9]{30,}"),
        ("api_org_", _START, r"api_org_[A-Za-z0-9]{30,}"),
        ("sk-", r"(?<![\w-])", _DIGIT_AND_CAPITAL + r"sk-[\w-]{20,}"),
        ("gsk_", _START, r"gsk_[A-Za-z0-9]{40,}"),
        ("xai-", r"(?<![\w-])", r"xai-[A-Za-z0-9]{40,}"),
        ("r8_", _START, r"r8_[A-Za-z0-9]{37}"),
        ("nvapi-", _START, r"nvapi-[\w-]{40,}"),
        ("dapi", _START, r"dapi[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"),
        ("local-", r"(?<![\w-])", r"local-[0-9a-f]{40}(?![A-Za-z0-9])"),
        ("wandb_v", _START, r"wandb_v\d_[\w-]{20,}"),
        ("k_", _START, r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("npm_", _START, r"npm_[A-Za-z0-9]{36}"),
        ("pypi-", r"(?<![\w-])", r"pypi-[\w-]{50,}"),
        ("dckr_pat_", _START, r"dckr_pat_[\w-]{20,}"),
        ("_v1_", _START, r"do[opr]_v1_[a-f0-9]{64}"),
        ("SG.", _START, r"SG\.[\w-]{16,}\.[\w-]{16,}"),
        ("hvs.", _START, r"hvs\.[\w-]{24,}"),
        ("AGE-SECRET-KEY-1", "", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
        ("tskey-", _START, r"tskey-[\w-]{16,}"),
        ("key-", r"(?<![\w-])", r"key-[0-9a-f]{32}(?![A-Za-z0-9])"),
        ("sntrys_", _START, r"sntrys_[\w+/=-]{20,}"),
        ("glsa_", _START, r"glsa_\w{32,}"),
        ("eyJ", _START, r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
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
        (":", rf"(:)(?:{_AFTER_NUMBER})[A-Za-z0-9_-]{{35}}(?![\w-])"),
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
