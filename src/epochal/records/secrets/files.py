"""Which files are secrets, and the rest of a project's files without theirs."""

from __future__ import annotations

import re
from pathlib import PurePath

from epochal.records.secrets.known import known_values
from epochal.records.secrets.text import redact

_NAMES = re.compile(
    r"\.env(?!\.(?:example|sample|template|dist|defaults?)\b)(?:\..+)?|[\w-]+\.env|\.envrc"
    r"|.+\.(?:pem|key|p12|pfx|jks|keystore|ppk|kdbx|p8|ovpn|tfstate)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:\.(?!pub$).+)?"
    r"|[._]netrc|\.pgpass|\.my\.cnf|\.pypirc|\.npmrc|\.git-credentials|\.htpasswd|\.dockercfg"
    r"|\.vault-token|\.s3cfg|\.boto|kubeconfig|credentials|kaggle\.json"
    r"|(?:[\w.-]*[._-])?(?:secrets?|credentials?|passwords?|client_secret[\w.-]*|"
    r"service[_-]account[\w.-]*)\.(?:ya?ml|json|toml|ini|cfg|txt|csv)"
    r"|token(?:\.(?:txt|json|pickle))?",
    re.IGNORECASE,
)
_FOLDERS = frozenset((".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure"))
_CODE = re.compile(
    r"\.(?:py[iwx]?|[cm]?jsx?|[cm]?tsx?|c|cc|cpp|cuh?|cl|h|hpp|metal|rs|go|java|rb|jl|lua|r|scala"
    r"|swift|kt|m|cs|php|pl|ps1|sql|hs|ml|dart|vue|zig|nim|f90|proto|html?|cmake|ipynb)",
    re.IGNORECASE,
)
_SCRIPT = re.compile(rb"#!.*(?:python|perl|ruby|node|julia|Rscript)")
_PAGE = re.compile(r"\.(?:md|rst)", re.IGNORECASE)


def is_secret_file(path: PurePath | str) -> bool:
    """Whether a file is known by its name to hold secrets, such as ``.env`` and ``id_rsa``."""
    *folders, name = (path if isinstance(path, str) else path.as_posix()).split("/")
    is_inside = any(folder.lower() in _FOLDERS for folder in folders)
    return is_inside or _NAMES.fullmatch(name) is not None


def redact_bytes(data: bytes, *, name: str = "") -> bytes:
    """The content of a file without its secrets; the same bytes if it holds none.

    Args:
        data: What stands in the file.
        name: Its name; in source code, fewer things can be secrets than in a config.
    """
    if b"\0" in data:
        for value in known_values():
            found = value.encode(errors="surrogateescape")
            data = data.replace(found, b"*" * len(found))
        return data
    text = data.decode("utf-8", "surrogateescape")
    suffix = PurePath(name).suffix
    is_code = _CODE.fullmatch(suffix) is not None or _SCRIPT.match(data) is not None
    clean = redact(text, is_code=is_code, is_page=_PAGE.fullmatch(suffix) is not None)
    return data if clean == text else clean.encode("utf-8", "surrogateescape")
