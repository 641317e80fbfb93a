"""The session of a browser: opened by a code, described by what it may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.web.site.route import JsonAnswer

if TYPE_CHECKING:
    from epochal.web.site.route import ApiCall
    from epochal.web.site.sessions import WebSession
    from epochal.web.site.site import Site

_RULES = "HttpOnly; SameSite=Strict; Path=/"


def open_session(site: Site, call: ApiCall) -> JsonAnswer:
    """Exchange the code of the printed link for a cookie."""
    cookie, session = site.sessions.open(call.body["code"])
    headers = {"set-cookie": f"{site.cookie_name}={cookie}; {_RULES}"}
    return JsonAnswer(_describe(site, session), headers)


def close_session(site: Site, call: ApiCall) -> JsonAnswer:
    """End the session of this browser."""
    assert call.session is not None
    site.sessions.close(call.session)
    headers = {"set-cookie": f"{site.cookie_name}=; Max-Age=0; {_RULES}"}
    return JsonAnswer({"signed_out": True}, headers)


def get_session(site: Site, call: ApiCall) -> dict[str, Any]:
    """What this session may do, and what it sees."""
    assert call.session is not None
    return _describe(site, call.session)


def _describe(site: Site, session: WebSession) -> dict[str, Any]:
    return {
        "capabilities": list(session.capabilities),
        "csrf": session.csrf,
        "version": site.version,
        "project": site.project,
        "runs_dir": str(site.index.root / site.index.below),
    }
