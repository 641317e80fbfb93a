"""A client of yaml-language-server, which answers for editors: completions, hovers, mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = shutil.which("yaml-language-server")


class YamlServer:
    """Asks the server about a text as an editor would; ``|`` marks the cursor."""

    def __init__(self, folder: Path) -> None:
        assert COMMAND is not None
        self._folder = folder
        self._process = subprocess.Popen(
            [COMMAND, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self._last = 0
        root = folder.as_uri()
        self._ask("initialize", {"processId": None, "rootUri": root, "capabilities": {}})
        self._send("initialized", {})
        settings = {"yaml": {"schemaStore": {"enable": False}, "completion": True, "hover": True}}
        self._send("workspace/didChangeConfiguration", {"settings": settings})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def completions(self, text: str) -> dict[str, dict[str, Any]]:
        """The offered items at the cursor, by label."""
        found = self._at_cursor("textDocument/completion", text)
        return {item["label"]: item for item in (found or {}).get("items", [])}

    def hover(self, text: str) -> str:
        """The text that is shown for the word under the cursor."""
        found = self._at_cursor("textDocument/hover", text)
        return "" if not found else str(found["contents"]["value"])

    def mistakes(self, text: str) -> list[dict[str, Any]]:
        """The marks under the text, each with its message and range."""
        uri = self._open(text)
        while True:
            message = self._read()
            about = message.get("params", {})
            if message.get("method", "").endswith("/publishDiagnostics") and about["uri"] == uri:
                return list(about["diagnostics"])

    def _at_cursor(self, method: str, text: str) -> Any:
        before, _, after = text.partition("|")
        uri = self._open(before + after)
        position = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        return self._ask(method, {"textDocument": {"uri": uri}, "position": position})

    def _open(self, text: str) -> str:
        self._last += 1
        uri = f"{self._folder.as_uri()}/text{self._last}.yaml"
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send("textDocument/didOpen", {"textDocument": document})
        return uri

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._last += 1
        number = self._last
        self._write({"id": number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                return message.get("result")

    def _send(self, method: str, params: dict[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        """The next message; questions of the server get an empty answer."""
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while (line := stream.readline().strip()) or not length:
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(stream.read(length))
        if "id" in message and "method" in message:
            self._write({"id": message["id"], "result": None})
            return self._read()
        return message
