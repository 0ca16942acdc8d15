"""remote.json in a version's folder: a model that another server has."""

from typing import Self
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, model_validator

from services.core.spec import Spec


class Remote(Spec):
    """Where the model is, and how long it may take."""

    url: str  # grpc://HOST:PORT, or grpcs:// for TLS
    model: str = Field(min_length=1)  # its name there
    version: str = ""  # its version there; "" = as the server chooses
    timeout_ms: int | None = Field(default=None, ge=1)  # of one call; None = what limits.max_execution_ms leaves
    root_certificates: str = ""  # PEM file beside it: whom to believe, with grpcs; "" = whom the host believes
    headers: dict[str, str] = {}  # metadata of each call

    @model_validator(mode="after")
    def _fits(self) -> Self:
        parts = self._parts()
        if parts.scheme not in {"grpc", "grpcs"} or not parts.hostname or parts.port is None or parts.path.strip("/"):
            raise ValueError(f"url: expected grpc://HOST:PORT or grpcs://HOST:PORT, found {self.url!r}")
        if self.root_certificates and (not self.is_encrypted or "/" in self.root_certificates):
            raise ValueError("root_certificates: expected a file beside it, and a url with grpcs://")
        if bad := [name for name in self.headers if name != name.lower() or not name.isascii() or " " in name]:
            raise ValueError(f"headers: expected names in lower case, found {bad[0]!r}")
        return self

    @property
    def is_encrypted(self) -> bool:
        return self._parts().scheme == "grpcs"

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self._parts().netloc

    def _parts(self) -> SplitResult:
        parts = urlsplit(self.url)
        try:
            _ = parts.port
        except ValueError:
            return SplitResult("", "", "", "", "")
        return parts
