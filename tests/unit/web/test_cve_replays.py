"""Attacks that worked on other experiment trackers, replayed against this server.

Each row is the request of one published vulnerability, with the paths of this server. What such a
request carried there (a path, a module, a URL, a shell text) must have no effect here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser

RUN = RUNS[0]
Row = tuple[str, str, str, dict[str, Any], tuple[int, ...]]

# An API without authentication, or with a default password (Ray, MLflow, Aim).
UNSIGNED: list[Row] = [
    ("CVE-2023-48022", "POST", "/api/jobs/", {"body": {"entrypoint": "id"}}, (401, 404)),
    ("CVE-2026-0545", "POST", "/api/runs/delete", {"body": {"ids": [RUN]}}, (401,)),
    ("CVE-2026-2652", "GET", "/api/events", {}, (401,)),
    ("CVE-2026-85663", "POST", f"/api/runs/{RUN}/__class__/run", {"body": {}}, (401,)),
    ("CVE-2026-2635", "GET", "/api/runs", {"authorization": "Basic YWRtaW46cGFzc3dvcmQ="}, (401,)),
    ("CVE-2025-11200", "POST", "/api/session", {"body": {"code": ""}}, (401,)),
    ("CVE-2022-29241", "GET", "/api/runs/.epochal/log", {}, (401,)),
    ("CVE-2019-9644", "GET", "/api/runs", {"sec_fetch_dest": "script"}, (401,)),
]

# A page of another site, or a name that leads to this machine (Ray, MLflow, Aim, Gradio, Jupyter).
FOREIGN: list[Row] = [
    ("CVE-2025-62593", "GET", "/api/runs", {"host": "rebind.example:8765"}, (403,)),
    ("CVE-2026-27482", "DELETE", "/api/runs/delete", {"origin": "http://evil.example"}, (403,)),
    ("CVE-2025-14279", "GET", "/api/runs", {"host": "evil.example"}, (403,)),
    ("CVE-2026-2611", "GET", "/api/runs", {"origin": "http://localhost.evil.example"}, (403,)),
    ("CVE-2025-1473", "POST", "/api/session", {"origin": "http://evil", "body": {}}, (403,)),
    ("CVE-2024-2196", "POST", "/api/runs/delete", {"origin": None, "body": {"ids": [RUN]}}, (403,)),
    ("CVE-2024-7760", "GET", "/api/runs", {"origin": "http://127.0.0.1:9999"}, (403,)),
    ("CVE-2024-1727", "POST", "/api/runs/delete", {"sec_fetch_site": "cross-site"}, (403,)),
    ("CVE-2024-47084", "POST", "/api/runs/delete", {"origin": "http://localhost:1"}, (403,)),
    ("CVE-2024-47165", "POST", "/api/runs/delete", {"origin": "null", "body": {}}, (403,)),
    ("CVE-2023-40170", "GET", f"/api/media/{RUN}/x", {"sec_fetch_site": "cross-site"}, (403,)),
    ("CVE-2024-22421", "GET", "/api/session", {"sec_fetch_site": "same-site"}, (403,)),
    ("CVE-2026-2033", "POST", "/api/runs/delete", {"content_type": "text/plain"}, (400,)),
]

# Files outside of the record are read (MLflow, Ray, Aim, Gradio, Jupyter, aiohttp).
READS: list[Row] = [
    (name, "GET", path, {}, (404,))
    for name, path in [
        ("CVE-2023-1177", f"/api/media/{RUN}/..%2f..%2fsecret.txt"),
        ("CVE-2023-2356", "/api/runs/..%2f..%2fsecret.txt/log"),
        ("CVE-2023-2780", f"/api/media/{RUN}/file:%2f%2f%2fetc%2fpasswd"),
        ("CVE-2023-30172", f"/api/runs/{RUN}/code/..%5c..%5csecret.txt"),
        ("CVE-2023-6753", f"/api/media/{RUN}/C:%5cWindows%5cwin.ini"),
        ("CVE-2023-6831", f"/api/media/{RUN}/%252e%252e%252fsecret.txt"),
        ("CVE-2023-6909", f"/api/media/{RUN}/%23/../../secret.txt"),
        ("CVE-2024-1483", "/api/runs/%23%2f..%2f..%2fsecret.txt"),
        ("CVE-2024-1593", f"/api/runs/{RUN};..%2f..%2fsecret.txt/log"),
        ("CVE-2024-2928", f"/api/media/{RUN}/x%23..%2f..%2fsecret.txt"),
        ("CVE-2024-3848", f"/api/media/{RUN}/%23..%2f%23..%2fsecret.txt"),
        ("CVE-2026-2614", f"/api/runs/{RUN}/media/..%2fsecret.txt"),
        ("CVE-2023-6020", "/assets/..%2f..%2f..%2fetc%2fpasswd"),
        ("CVE-2023-6021", f"/api/runs/{RUN}/log/..%2f..%2fsecret.txt"),
        ("CVE-2021-43775", "/assets/%2e%2e/%2e%2e/secret.txt"),
        ("CVE-2023-34239", f"/api/media/{RUN}/%2fetc%2fpasswd"),
        ("CVE-2023-51449", "/assets/..\\..\\secret.txt"),
        ("CVE-2024-1561", f"/api/media/{RUN}/__init__"),
        ("CVE-2026-28414", f"/api/media/{RUN}/%5c%5chost%5cshare"),
        ("CVE-2022-29238", "/api/runs/.epochal"),
        ("CVE-2025-69226", "/assets/..%2fapp.py"),
    ]
]

# Ids that become paths of what is written or deleted (MLflow, Aim).
WRITES: list[Row] = [
    (name, "POST", "/api/runs/delete", {"body": {"ids": [text]}}, (404,))
    for name, text in [
        ("CVE-2024-1560", "%252e%252e%252foutside"),
        ("CVE-2023-6976", "../outside"),
        ("CVE-2025-11201", "..\\outside"),
        ("CVE-2026-53995", "tr-../outside"),
        ("CVE-2024-6396", "/outside"),
        ("CVE-2024-6483", "./../outside"),
        ("CVE-2024-6851", "*"),
        ("CVE-2024-8769", "outside\0"),
    ]
]

# Archives and files by name, URLs to fetch, shell texts (MLflow, Lightning, Gradio, Ray).
FIELDS: list[Row] = [
    (
        "CVE-2024-0520",
        "PUT",
        f"/api/runs/{RUN}/readme",
        {"body": {"text": "x", "filename": "/x"}},
        (422,),
    ),
    ("CVE-2024-5980", "POST", "/api/runs/delete", {"content_type": "multipart/form-data"}, (400,)),
    ("CVE-2025-15031", "PUT", f"/api/runs/{RUN}/code/x.tar", {"body": {}}, (405,)),
    (
        "CVE-2025-15036",
        "POST",
        "/api/mail/read",
        {"body": {"ids": ["../x"], "archive": "t.tgz"}},
        (422,),
    ),
    ("CVE-2024-6829", "POST", f"/api/runs/{RUN}/readme", {"body": {}}, (405,)),
    ("CVE-2023-48023", "GET", "/api/runs", {"query": {"url": "http://169.254.169.254/"}}, (422,)),
    (
        "CVE-2026-2393",
        "POST",
        "/api/mail/read",
        {"body": {"ids": ["x"], "webhook": "http://x"}},
        (422,),
    ),
    ("CVE-2026-64849", "GET", "/api/mail", {"query": {"redirect": "http://x"}}, (422,)),
    (
        "CVE-2024-47167",
        "GET",
        "/api/series",
        {"query": {"run": "http://127.0.0.1/", "name": "x"}},
        (404,),
    ),
    ("CVE-2026-28416", "GET", f"/api/media/{RUN}/http:%2f%2fx", {}, (404,)),
    ("CVE-2023-6019", "GET", f"/api/runs/{RUN}/system", {"query": {"format": "$(id)"}}, (422,)),
    ("CVE-2025-15379", "GET", f"/api/runs/{RUN}/log", {"query": {"rank": "0; id"}}, (422,)),
    (
        "CVE-2026-68508",
        "POST",
        f"/api/runs/{RUN}/check",
        {"body": {"_target_": "os"}},
        (422,),
    ),
    ("CVE-2025-23304", "POST", f"/api/runs/{RUN}/rerun", {"body": {"config": {}}}, (422,)),
    (
        "CVE-2026-116692",
        "POST",
        "/api/experiments/os.system/launch",
        {"body": {"idempotency_key": "k"}},
        (404,),
    ),
    (
        "CVE-2024-5452",
        "POST",
        f"/api/runs/{RUN}/rerun",
        {"body": {"idempotency_key": "k", "overrides": {"__class__": {"a": {"b": 1}}}}},
        (422,),
    ),
    ("CVE-2023-6014", "POST", f"/api/runs/{RUN}/resume", {"body": {"user_dir": "/tmp"}}, (422,)),
    ("CVE-2024-12718", "GET", f"/api/runs/{RUN}/download", {"query": {"path": ".."}}, (422,)),
    (
        "CVE-2025-4517",
        "GET",
        f"/api/runs/{RUN}/checkpoints/..%2f..%2fsecret.txt/weights",
        {},
        (404,),
    ),
    ("CVE-2023-6977", "POST", "/api/sweeps/..%2foutside/stop", {"body": {}}, (404,)),
    ("CVE-2023-6572", "GET", "/api/compare", {"query": {"run": ["`id`", "$(id)"]}}, (404,)),
]

# Python in queries (Aim); class names in data (Hydra and others) have no field to arrive in.
QUERIES = {
    "CVE-2024-2195": "run.__class__.__mro__[1].__subclasses__()",
    "CVE-2025-5321": "[x for x in (1).__class__.__base__.__subclasses__()]",
    "CVE-2022-0845": "__import__('os').system('id')",
    "CVE-2026-22584": "_target_ = os.system",
}

# Addresses that redirect (Jupyter).
REDIRECTS = {
    "CVE-2019-10856": "//evil.example/%2f..",
    "CVE-2020-26215": "//evil.example",
    "CVE-2020-26232": "/\\evil.example",
    "CVE-2023-39968": "/open?next=//evil.example",
}

# Texts that ran as scripts (MLflow, Aim, Gradio, Jupyter, Argo).
SCRIPTS = {
    "CVE-2023-6568": ("GET", "/api/runs", {"content_type": "<script>alert(1)</script>"}),
    "CVE-2024-27132": ("GET", "/api/runs/%3Cscript%3Ealert(1)%3C%2fscript%3E", {}),
    "CVE-2024-27133": ("GET", "/api/runs", {"query": {"columns": "<script>alert(1)</script>"}}),
    "CVE-2024-8863": ("GET", "/api/runs", {"query": {"search": "<script>alert(1)</script>"}}),
    "CVE-2025-51464": ("GET", "/api/x/<script>alert(1)</script>", {}),
    "CVE-2024-47872": ("GET", "/api/runs", {"query": {"<script>alert(1)</script>": "1"}}),
    "CVE-2018-8768": ("GET", f"/api/runs/{RUN}/log/search", {"query": {"q": "<script>alert(1)"}}),
}


def test_attacks_on_other_servers_have_no_effect(
    browser: Browser, runs: Path, tmp_path: Path, record_property
) -> None:
    (tmp_path / "secret.txt").write_text("SECRET-CONTENT")
    (tmp_path / "outside").mkdir()
    (runs / "outside").mkdir()
    cookie = browser.cookie
    names = []
    for name, method, path, parts, statuses in [*UNSIGNED, *FOREIGN, *READS, *WRITES, *FIELDS]:
        browser.cookie = "" if (name, method, path, parts, statuses) in UNSIGNED else cookie
        done = browser.send(method, path, **parts)
        assert done.status in statuses, (name, done.status, done.body)
        assert b"SECRET" not in done.body, name
        assert b"root:" not in done.body, name
        names.append(name)
    browser.cookie = cookie
    for name, text in QUERIES.items():
        assert browser.get("/api/runs", where=text)["problem"], name
    for name, path in REDIRECTS.items():
        path, _, query = path.partition("?")
        done = browser.request("GET", path, headers=browser.headers("GET"), query=query.encode())
        assert "location" not in done.headers, name
        assert b"evil" not in done.body, name
        assert done.status in (404, 422), name
    for name, (method, path, parts) in SCRIPTS.items():
        done = browser.send(method, path, **parts)
        assert done.headers["content-type"] == "application/json", name
        assert done.headers["x-content-type-options"] == "nosniff", name
        assert "default-src 'none'" in done.headers["content-security-policy"], name
    names += [*QUERIES, *REDIRECTS, *SCRIPTS]
    assert len(names) == len({*names}) >= 60
    assert (tmp_path / "outside").is_dir()
    assert (runs / "outside").is_dir()
    assert browser.get("/api/runs")["total"] == 3
    record_property("counted", f"{len(names)} published attacks replayed")
