"""A certificate authority and what it signed, made with openssl for one test run."""

import subprocess
from pathlib import Path

#: What the brokers' certificate names; not "localhost", so that a wrong host name can be tried.
SERVER_NAME = "IP:127.0.0.1"


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.pem"
        self.other_ca = folder / "other-ca.pem"
        self.client = folder / "client.pem"
        self.client_key = folder / "client.key"
        #: Certificate and key in one file, as Kafka's PEM key store wants it.
        self.server_store = folder / "server-store.pem"
        self._folder = folder
        self._authority("ca")
        self._authority("other-ca")
        self._signed("server", f"subjectAltName={SERVER_NAME}")
        self._signed("client", "extendedKeyUsage=clientAuth")
        self.server_store.write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())

    def _authority(self, name: str) -> None:
        self._openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )

    def _signed(self, name: str, extension: str) -> None:
        self._openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        (self._folder / f"{name}.ext").write_text(extension)
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem"),
        )

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)
