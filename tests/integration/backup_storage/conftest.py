"""Each kind of storage that a backup may be kept in, empty, as a location."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from quorate.backup.objects.storage import StorageLocation
from tests.integration.backup_storage import azurite, google_server, object_servers

_numbers = count()


@pytest.fixture(scope="session")
def moto_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if object_servers.program("moto_server") is None:
        pytest.skip("moto_server is not installed")
    with object_servers.moto(tmp_path_factory.mktemp("moto") / "server.log") as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def seaweedfs_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if object_servers.program("weed") is None:
        pytest.skip("SeaweedFS (weed) is not installed")
    with object_servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azurite_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        azurite.fetch()
    except azurite.AzuriteUnavailableError as error:
        pytest.skip(str(error))
    with azurite.azurite(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def google_endpoint() -> Iterator[str]:
    with google_server.google_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (object_servers.ENVIRONMENT | azurite.ENVIRONMENT | google_server.ENVIRONMENT).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["moto", "seaweedfs"])
def bucket(request: pytest.FixtureRequest) -> StorageLocation:
    """A fresh folder in a bucket."""
    endpoint = request.getfixturevalue(f"{request.param}_endpoint")
    return StorageLocation(f"s3://{object_servers.BUCKET}/test-{next(_numbers)}", endpoint)


@pytest.fixture(params=["directory", "moto", "seaweedfs", "azurite", "google"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StorageLocation:
    if request.param == "directory":
        return StorageLocation(f"file://{tmp_path}/storage")
    endpoint = request.getfixturevalue(f"{request.param}_endpoint")
    if request.param == "azurite":
        return StorageLocation(f"az://{azurite.CONTAINER}/test-{next(_numbers)}", endpoint)
    if request.param == "google":
        return StorageLocation(f"gs://{google_server.BUCKET}/test-{next(_numbers)}", endpoint)
    return StorageLocation(f"s3://{object_servers.BUCKET}/test-{next(_numbers)}", endpoint)
