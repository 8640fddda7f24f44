"""Azurite, the emulator of Azure's blob storage: fetched once with npm into ``.peers/`` of the checkout."""

import base64
import hashlib
import hmac
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.eventually import eventually
from tests.integration.backup_storage.object_servers import free_port, running
from tests.peers.jars import CACHE

VERSION = "3.35.0"
CONTAINER = "backups"
ACCOUNT = "devstoreaccount1"
# The emulator's own key, which its documentation gives.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ENVIRONMENT = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
_FETCH_TIMEOUT_S = 300


class AzuriteUnavailableError(Exception):
    """It cannot be used here; the message says why."""


def fetch() -> Path:
    """The program."""
    if shutil.which("npm") is None:
        raise AzuriteUnavailableError("Azurite needs npm, which is not installed")
    folder = CACHE / f"azurite-{VERSION}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", f"azurite@{VERSION}"]
        try:
            subprocess.run(command, cwd=partial, check=True, capture_output=True, timeout=_FETCH_TIMEOUT_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise AzuriteUnavailableError(f"Azurite cannot be fetched: {error}") from None
        partial.rename(folder)
    return folder / "node_modules/.bin/azurite-blob"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """The endpoint of the emulator, with the container made."""
    port = free_port()
    options = ["--blobPort", str(port), "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    with running([str(fetch()), *options], folder / "server.log", {}):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        eventually(lambda: _make_container(endpoint), f"the container at {endpoint}", within_s=60)
        yield endpoint


def _make_container(endpoint: str) -> bool:
    headers = {"x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "x-ms-version": "2021-10-04"}
    canonical_headers = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    to_sign = "PUT" + "\n" * 12 + canonical_headers + f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = hmac.new(base64.b64decode(KEY), to_sign.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error}: {error.read()!r}") from None
    except OSError:
        return False
