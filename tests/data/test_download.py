"""Data sets are downloaded where that is allowed: resumed, checked by hash, or said what to put where."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.data import DOWNLOADS, fetch_data
from seqdg.data.download import Download

CONTENT = bytes(range(256)) * 1000


class Server(BaseHTTPRequestHandler):
    """Serves `content`, from where a Range begins, and notes where."""

    content: bytes = CONTENT
    cut: int | None = None  # end the connection after so many bytes
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
        if start and start >= len(self.content):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start : None if self.cut is None else start + self.cut])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Server, "asked", [])
    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/file"
    server.shutdown()
    server.server_close()


def ignore(done: int, total: int) -> None:
    """Show nothing."""


def test_a_download_that_was_cut_goes_on_where_it_stopped(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = Download(address, "a.bin", "CC0", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(Server, "cut", 100_000)
    with pytest.raises(UsageError, match=r"cannot be downloaded .* Run the command again to go on, or get the file"):
        fetch_data(download, tmp_path, ignore)
    assert not (tmp_path / "a.bin").exists()
    monkeypatch.setattr(Server, "cut", None)
    seen: list[tuple[int, int]] = []
    path = fetch_data(download, tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert Server.asked == ["", "bytes=100000-"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


def test_a_whole_file_that_was_not_named_yet_is_not_sent_again(address: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    fetch_data(Download(address, "a.bin", "CC0", hashlib.sha256(CONTENT).hexdigest()), tmp_path, ignore)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_what_is_not_the_known_file_is_refused_and_removed(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the known file: its hash differs"):
        fetch_data(Download(address, "a.bin", "CC0", "0" * 64), tmp_path, ignore)
    assert list(tmp_path.iterdir()) == []


def test_a_member_of_an_archive_is_unpacked(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside.data", "a,b\n1,2\n")
    monkeypatch.setattr(Server, "content", packed.getvalue())
    download = Download(address, "table.csv", "CC0", member="inside.data")
    assert fetch_data(download, tmp_path, ignore).read_text() == "a,b\n1,2\n"
    with pytest.raises(UsageError, match=r"has no other\.data"):
        fetch_data(replace(download, member="other.data"), tmp_path, ignore)


def test_every_download_is_of_a_known_set_and_is_checked() -> None:
    listed = seqdg("list", "datasets").stdout
    for name, download in DOWNLOADS.items():
        assert f"\n{name}: " in listed
        assert download.address.startswith("https://")
        assert download.licence.startswith("CC")
        checked = seqdg("data", name).stdout
        assert (
            f"`seqdg data {name} --data DIR` downloads {download.file} ({download.licence}) and checks it." in checked
        )


def test_the_command_downloads_and_checks(address: str, shared_data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Server, "content", (shared_data / "parkinsons_updrs.csv").read_bytes())
    monkeypatch.setitem(DOWNLOADS, "parkinsons", Download(address, "parkinsons_updrs.csv", "CC BY 4.0"))
    done = seqdg("data", "parkinsons", "--data", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "This is the known copy" in done.stdout
    assert done.stdout.endswith(f"Next: seqdg bench parkinsons --data {tmp_path}\n")


def test_the_command_says_what_to_put_where(tmp_path: Path) -> None:
    assert "below --data DIR: pacs.zip" in seqdg("data", "pacs").stdout
    done = seqdg("data", "pacs", "--data", tmp_path)
    assert done.returncode == 2
    assert "has no pacs.zip or PACS.zip or PACS or pacs, and seqdg does not download pacs. Get it from" in done.stderr
    assert seqdg("data", "rotated-mnist").stdout.endswith("Nothing to get. Next: seqdg bench rotated-mnist\n")
    assert "Did you mean 'pacs'?" in seqdg("data", "pacss").stderr
