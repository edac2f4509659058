"""Where the demo's agent works, the one file that lies beside it, and what is kept while a person is asked.

toolcast-demo-<user>/<run>-<digest>/
    workspace/          the agent's own: its database
    cache/              not the agent's: files to be asked about, made here, and nobody else's
    conversation.json   as it stood when the agent asked
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from listeners import ToolError
from listeners.chain import Message, dump_messages, load_messages

__all__ = ["CACHED", "NothingKept", "Workspace"]

CACHED: Final = ("cache.db", "cache.old")
"""The files outside the workspace that the agent may ask to delete."""

_CONVERSATION: Final = "conversation.json"
_MODEL: Final = "model.txt"


class NothingKept(Exception):
    """No conversation of ``run`` is kept in ``folder``."""

    def __init__(self, run: str, folder: Path) -> None:
        super().__init__(
            f"no conversation of run {run} is kept in {folder}: a run is taken up where it was asked, with the same "
            "REDIS_URL and TMPDIR"
        )
        self.run = run
        self.folder = folder


class Workspace:
    """The folders of ``run``, whose Redis is ``redis`` (any text that tells it from others).

    They lie below the system's temporary folder, where only this user may look. Raises ``OSError`` if somebody else
    holds that name.
    """

    def __init__(self, run: str, *, redis: str) -> None:
        self.run = run
        digest = hashlib.sha256(f"{redis}\n{run}".encode()).hexdigest()[:12]
        self._folder = _own(Path(tempfile.gettempdir(), f"toolcast-demo-{os.getuid()}")) / f"{run}-{digest}"
        self.home = self._folder / "workspace"
        self._cache = self._folder / "cache"

    def make(self) -> None:
        """Begin with empty folders and the files to be asked about; what an earlier run left is removed."""
        self.remove()
        self.home.mkdir(parents=True)
        self._cache.mkdir()
        for name in CACHED:
            (self._cache / name).write_text("Made by toolcast demo, to be deleted by it.\n", "utf-8")

    def remove(self) -> None:
        """Remove all of it; harmless where nothing is."""
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- The conversation ---

    def keep(self, messages: Sequence[Message], *, model: str) -> None:
        """Keep the conversation and the name of the model that leads it."""
        (self._folder / _MODEL).write_text(model, "utf-8")
        # Moved into place, so that whoever ends this process in between leaves it whole or not at all.
        written = self._folder / f"{_CONVERSATION}.new"
        written.write_bytes(dump_messages(messages))
        written.replace(self._folder / _CONVERSATION)

    def kept(self) -> tuple[list[Message], str]:
        """Return the conversation and its model's name; raises :class:`NothingKept`."""
        try:
            messages = load_messages((self._folder / _CONVERSATION).read_bytes())
            return messages, (self._folder / _MODEL).read_text("utf-8")
        except (FileNotFoundError, ValueError):
            raise NothingKept(self.run, self._folder) from None

    # --- Deleting ---

    def locate(self, arguments: Mapping[str, Any]) -> Path:
        """Return the file that the arguments of :meth:`delete_file` name."""
        folder, file = str(arguments.get("folder", ".")), str(arguments.get("file", ""))
        return (self.home / folder / file).resolve()

    def holds(self, file: Path) -> bool:
        """Whether the file is the agent's own."""
        return file.is_relative_to(self.home.resolve())

    def may_delete(self, file: Path) -> bool:
        """Whether the demo has made the file itself: nothing else is deleted, whoever approves of it."""
        return self.holds(file) or (file.parent == self._cache.resolve() and file.name in CACHED)

    def delete_file(self, file: str, folder: str = ".") -> str:
        """Delete a file.

        Args:
            file: its name
            folder: where it is, seen from the workspace: "." is the workspace itself
        """
        found = self.locate({"file": file, "folder": folder})
        if not self.may_delete(found):
            raise ToolError("the demo deletes only files that it has made")
        if not found.is_file():
            raise ToolError("no such file")
        found.unlink()
        return f"Deleted {file}."


def _own(folder: Path) -> Path:
    """Return ``folder``, made if need be, which must be this user's alone: its name can be guessed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise FileExistsError(f"{folder} must be a folder that nobody but you may use; remove it")
    return folder
