import hashlib
import hmac

import pytest

from services.core import api_key
from services.core.api_key import RANDOM_BYTES, ApiKey

KEY = api_key.make(bytes(range(RANDOM_BYTES)))


def test_a_key_is_its_id_and_256_bits_that_nobody_can_guess() -> None:
    text = KEY.text()

    assert text == "tk_aaaqeayeaudaocaj.CgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCk"
    assert api_key.parse(text) == KEY
    assert len(KEY.secret) == 43


def test_what_is_stored_is_an_hmac_and_fits_that_key_only() -> None:
    stored = api_key.digest(KEY)

    assert stored == hmac.new(KEY.secret.encode(), b"turnout api key " + KEY.id.encode(), hashlib.sha256).hexdigest()
    assert api_key.matches(KEY, stored)
    assert not api_key.matches(api_key.make(bytes(RANDOM_BYTES)), stored)
    assert not api_key.matches(ApiKey(KEY.id, KEY.secret[:-1] + "A"), stored)


@pytest.mark.parametrize(
    "text", ["", "tk_", KEY.text()[:-1], KEY.text() + "x", KEY.text().upper(), KEY.secret, f"{KEY.text()}\n", "tk_é.x"]
)
def test_what_is_no_whole_key_is_none(text: str) -> None:
    assert api_key.parse(text) is None


def test_printing_a_key_shows_no_secret() -> None:
    assert KEY.secret not in f"{KEY} {KEY!r} {[KEY]}"
    with pytest.raises(ValueError, match="42 random bytes, not 3"):
        api_key.make(b"abc")
