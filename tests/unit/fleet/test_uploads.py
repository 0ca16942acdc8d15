"""Files that come with loads."""

import os
from pathlib import Path

from services.fleet.uploads import Uploads


def test_what_others_are_loading_stays(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    urls = [uploads.store("m", {"1/a": name}) for name in (b"old", b"used", b"new", b"again")]
    for at_s, url in enumerate(urls):
        os.utime(Path(url.removeprefix("file://")) / "m", (at_s, at_s))
    uploads.store("m", {"1/a": b"again"})
    uploads.keep_only("m", urls[1], 1.5)
    kept = sorted(file.read_bytes() for file in tmp_path.glob("*/m/1/a"))
    uploads.keep_only("m", None, 2.5)

    assert kept == [b"again", b"new", b"used"]
    assert [file.read_bytes() for file in tmp_path.glob("*/m/1/a")] == [b"again"]
