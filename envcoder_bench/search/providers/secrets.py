"""Keep API keys, and user names and passwords of URLs, out of files and messages."""

import base64
import re
from collections.abc import Callable
from urllib.parse import unquote

Hide = Callable[[str], str]

HIDDEN = "[hidden]"
MIN_LENGTH = 8  # shorter ones are mostly placeholders, and may be words of a model's code, such as "pass"
_LOGIN = re.compile(r"(?<=//)[^/]*@")


def hiding(key: str, url: str = "") -> Hide:
    """Return a function that replaces a key, and the user name and password of a URL, in a text by HIDDEN."""
    login = login_of(url)
    secrets = {key, login, login.partition(":")[2]}
    secrets |= {unquote(secret) for secret in secrets}
    secrets.add(base64.b64encode(unquote(login).encode()).decode())  # the header that a server may echo
    known = sorted((secret for secret in secrets if len(secret) >= MIN_LENGTH), key=len, reverse=True)

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, HIDDEN)
        return text

    return hide


def login_of(url: str) -> str:
    """Return ``USER:PASSWORD`` of ``https://USER:PASSWORD@host/v1``; empty without it."""
    found = _LOGIN.search(url)
    return found.group()[:-1] if found else ""


def without_login(url: str) -> str:
    """Return a URL without user name and password."""
    return _LOGIN.sub("", url)
