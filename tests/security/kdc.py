"""A real MIT KDC of its own realm, without root: on a free port, all of its files in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from ottla.testing.ports import free_ports

REALM = "OTTLA.TEST"
_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _program(name: str) -> str | None:
    return shutil.which(name, path=_SEARCH)


def kdc_is_here() -> bool:
    return all(map(_program, ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist")))


class Kdc:
    """`with Kdc(folder) as kdc` runs it; `kdc.environment` leads programs to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.config = folder / "krb5.conf"
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'tickets'}",
            "KRB5RCACHENAME": f"file2:{folder / 'replays'}",
        }

    def __enter__(self) -> Kdc:
        self.config.write_text(
            f"""
[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
clockskew = 2
[realms]
{REALM} = {{
  kdc = 127.0.0.1:{self.port}
}}
"""
        )
        (self.folder / "kdc.conf").write_text(
            f"""
[kdcdefaults]
kdc_listen = 127.0.0.1:{self.port}
kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
{REALM} = {{
  database_name = {self.folder / "principals"}
  key_stash_file = {self.folder / "stash"}
  acl_file = {self.folder / "kadm5.acl"}
}}
"""
        )
        self.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        with (self.folder / "kdc.out").open("wb") as out:
            self._process = subprocess.Popen(
                [_program("krb5kdc") or "", "-n", "-r", REALM],
                env={**os.environ, **self.environment},
                stdout=out,
                stderr=out,
            )
        pause = threading.Event()
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                pause.wait(0.02)
        self.__exit__()
        raise AssertionError(f"the KDC did not start: {(self.folder / 'kdc.out').read_text()}")

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)

    def run(self, program: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One of Kerberos' programs, with this realm's settings."""
        done = subprocess.run(
            [_program(program) or program, *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def keytab(self, name: str, principals: Iterable[str]) -> Path:
        """New random keys of these principals, in one key table."""
        file = self.folder / f"{name}.keytab"
        file.unlink(missing_ok=True)
        for principal in principals:
            self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {principal}")
        file.chmod(0o600)
        return file
