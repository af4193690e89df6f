"""Databases in files and folders of any name, through the command line."""

from __future__ import annotations

import shlex

from results.database import address_of
from results.store import Store


def test_a_backup_in_a_folder_of_any_name(tmp_path, call):
    folder = tmp_path / "50%20 it's? ü"
    folder.mkdir()
    Store.open(address_of(folder / "t.db")).close()
    out, _ = call("db", "backup", str(folder / "b.db"), "--storage", address_of(folder / "t.db"))
    (address,) = shlex.split(out.rpartition("--storage ")[2])
    call("db", "check", "--storage", address)
