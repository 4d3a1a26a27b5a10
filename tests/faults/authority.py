"""An authority of the tests' own, which signs certificates for Cassandra nodes: good ones, and such
as have expired. Made with Java's keytool, like those of `tally.dev.certificates`."""

import secrets
from pathlib import Path

from tally.dev.cassandra_files import NodeTls
from tally.dev.certificates import keytool

_KEY = ("-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1")
# The same for all of a run, so that one file of keys can take another one's place.
PASSWORD = secrets.token_hex(16)


class Authority:
    def __init__(self, home: Path, name: str) -> None:
        home.mkdir(parents=True)
        self._home = home
        self._store = self._in_store("authority.p12", "authority")
        self.certificate = home / "authority.pem"  # what clients trust
        who = ("-dname", f"CN={name}", "-ext", "bc:c", "-validity", "30")
        keytool("-genkeypair", *_KEY, *who, *self._store)
        keytool("-exportcert", "-rfc", "-file", str(self.certificate), *self._store)

    def sign(self, address: str, *, from_days: int = -1, days: int = 30) -> NodeTls:
        """A new key, and a certificate for a node at this address, valid for so many days."""
        number = secrets.token_hex(4)
        store = self._in_store(f"{number}.p12", "node")
        request, signed = self._home / f"{number}.csr", self._home / f"{number}.pem"
        whose = ("-dname", f"CN={address}")
        valid = ("-startdate", f"{from_days}d", "-validity", str(days))
        keytool("-genkeypair", *_KEY, *whose, *store)
        keytool("-certreq", "-file", str(request), *store)
        keytool(
            *("-gencert", "-rfc", "-infile", str(request), "-outfile", str(signed)),
            *("-ext", f"SAN=ip:{address}", *valid, *self._store),
        )
        keytool(
            *("-importcert", "-noprompt", "-trustcacerts", "-file", str(self.certificate)),
            *(*store[:4], "-alias", "authority"),
        )
        keytool("-importcert", "-noprompt", "-file", str(signed), *store)
        return NodeTls(keystore=Path(store[1]), password=PASSWORD, certificate=self.certificate)

    def _in_store(self, file: str, alias: str) -> tuple[str, ...]:
        where = str(self._home / file)
        return ("-keystore", where, "-storepass", PASSWORD, "-alias", alias)
