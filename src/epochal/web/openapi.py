"""The OpenAPI description of the API, made from the route table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.web.site.route import ApiField, ApiRoute

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["what", "hint"],
            "properties": {"what": {"type": "string"}, "hint": {"type": "string"}},
        }
    },
}
_STATUSES = ("400", "401", "403", "404", "405", "409", "413", "422", "429", "431", "500", "503")


def describe_api(routes: Sequence[ApiRoute], version: str) -> dict[str, Any]:
    """The description of all routes below ``/api``."""
    paths: dict[str, Any] = {}
    for row in routes:
        if row.path.startswith("/api/"):
            paths.setdefault(row.path, {})[row.method.lower()] = _describe(row)
    return {
        "openapi": "3.1.0",
        "info": {"title": "epochal serve", "version": version or "0"},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _describe(row: ApiRoute) -> dict[str, Any]:
    error = {"$ref": "#/components/schemas/Error"}
    answers: dict[str, Any] = {
        code: {"description": "refused", "content": {"application/json": {"schema": error}}}
        for code in _STATUSES
    }
    answers["200"] = {"description": "the answer", "content": {row.type: {}}}
    if row.type == "application/json":
        answers["200"]["content"][row.type] = {"schema": {"type": "object"}}
    found: dict[str, Any] = {
        "summary": row.summary,
        "x-access": row.access,
        "parameters": [*map(_path_parameter, _names(row)), *map(_parameter, row.query)],
        "responses": answers,
    }
    if row.method != "GET":
        found["parameters"].append(
            {"name": "X-Epochal-Csrf", "in": "header", "schema": {"type": "string"}}
        )
        schema = {
            "type": "object",
            "additionalProperties": False,
            "required": [one.name for one in row.body if one.required],
            "properties": {one.name: one.schema() for one in row.body},
        }
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _names(row: ApiRoute) -> list[str]:
    return [one.strip("{}") for one in row.segments if one.startswith("{")]


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(one: ApiField) -> dict[str, Any]:
    return {"name": one.name, "in": "query", "required": one.required, "schema": one.schema()}
