"""Credentials files, as an operator creates them: keys by openssl, and a chain of signed tokens."""
import base64
import binascii
import json
import os
import subprocess
import time

PREFIXES = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
SEED = 18 << 3
# An Ed25519 key in PKCS 8 is this prefix and 32 bytes.
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


def encode(data):
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")


def url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Identity:
    """An operator, an account or a user."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory
        secret, prefix = os.urandom(32), PREFIXES[kind]
        self.key = os.path.join(directory, f"{kind}-{secret.hex()[:8]}.key")
        with open(self.key, "wb") as file:
            file.write(PKCS8 + secret)
        public = self.openssl("pkey", "-in", self.key, "-inform", "DER", "-pubout", "-outform", "DER")[-32:]
        self.name = encode(bytes([prefix]) + public)
        self.seed = encode(bytes([SEED | prefix >> 5, (prefix & 31) << 3]) + secret)

    @staticmethod
    def openssl(*arguments):
        return subprocess.run(["openssl", *arguments], check=True, capture_output=True).stdout

    def token(self, subject, **more):
        """A token about `subject`, signed by this one."""
        claims = {"jti": subject.name, "iat": int(time.time()), "iss": self.name, "sub": subject.name, "name": subject.kind,
                  "nats": {"type": subject.kind, "version": 2, **more}}
        text = ".".join(url(json.dumps(part).encode()) for part in [{"typ": "JWT", "alg": "ed25519-nkey"}, claims])
        path = self.key + ".text"
        with open(path, "w") as file:
            file.write(text)
        return text + "." + url(self.openssl("pkeyutl", "-sign", "-rawin", "-in", path, "-inkey", self.key, "-keyform", "DER"))


def credentials(directory, path):
    """Writes a user's file to `path`; returns the configuration of a server that accepts the user."""
    operator, account, user = [Identity(kind, directory) for kind in PREFIXES]
    all_of = {"subs": -1, "data": -1, "payload": -1}
    limits = {**all_of, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": True}
    with open(path, "w") as file:
        file.write(f"-----BEGIN NATS USER JWT-----\n{account.token(user, **all_of)}\n------END NATS USER JWT------\n\n"
                   f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n")
    return (f"operator: {operator.token(operator)}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {account.name}: {operator.token(account, limits=limits)} }}\n")
