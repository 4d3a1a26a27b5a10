"""A certificate for a node that encrypts its clients' connections."""

import secrets
import subprocess
from pathlib import Path

from counter.errors import SetupError
from tally.dev.cassandra_files import NodeTls
from tally.dev.requirements import find_java

VALID_DAYS = 365
MADE_WITHIN_S = 60.0


def make_certificate(directory: Path, address: str = "127.0.0.1") -> NodeTls:
    """A new key, and a certificate for this address that nobody signed: clients trust itself."""
    directory.mkdir(parents=True, exist_ok=True)
    made = NodeTls(
        keystore=directory / "node.p12",
        password=secrets.token_hex(16),
        certificate=directory / "node.pem",
    )
    store = ["-keystore", str(made.keystore), "-storepass", made.password, "-alias", "node"]
    key = ["-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1"]
    whose = ["-dname", f"CN={address}", "-ext", f"SAN=ip:{address},dns:localhost"]
    keytool("-genkeypair", *key, *whose, "-validity", str(VALID_DAYS), *store)
    keytool("-exportcert", "-rfc", "-file", str(made.certificate), *store)
    return made


def keytool(*arguments: str) -> None:
    """Runs Java's program for keys and certificates; SetupError says what it did not like."""
    # Every Java has it, beside the program `java` itself.
    program = Path(find_java().path).resolve().with_name("keytool")
    done = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=MADE_WITHIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"{program} failed: {done.stdout.strip()} {done.stderr.strip()}")
