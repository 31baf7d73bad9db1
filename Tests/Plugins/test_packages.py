"""Packages of plugins: packed, signed by the real minisign, searched, installed, changed and brought back; needs RXD."""
import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import platform
import signal
import shutil
import subprocess
import tarfile
import threading
import time
import unittest

import fixtures
from test_rxd import RXD, WithRxd

UPPER = os.path.join(fixtures.EXAMPLES, "shell", "upper.sh")

FILE = """
name: p
%ssources:
  in: { stdin: { decode: json } }
sinks:
  out:
    from: in
    chain: [ { upper: name } ]
    stdout: { encode: json }
"""


def plugin(version="1.0.0", name="shell-tools", change=lambda code: code):
    with open(UPPER, encoding="utf-8") as file:
        code = file.read()
    return change(code.replace('version: "1.0.0"', f'version: "{version}"').replace("shell-tools", name)).encode()


def archive(members):
    """A tar of pairs of a header or a name, and content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as target:
        for header, content in members:
            if isinstance(header, str):
                header = tarfile.TarInfo(header)
            header.size = len(content)
            target.addfile(header, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), mtime=0)


def package(code=None, more=(), **manifest):
    """A package as `rxd plugin pack` makes it, without its checks."""
    code = plugin(manifest.get("version", "1.0.0"), manifest.get("name", "shell-tools")) if code is None else code
    files = [("upper.sh", code), *more]
    manifest = {
        "format": 1, "name": "shell-tools", "version": "1.0.0", "summary": "Small operators in shell.", "contract": 1, "machine": "any",
        "components": [{"kind": "operator", "name": "upper", "summary": "Writes a text of the event in capitals."}],
        "main": "upper.sh", "files": [
            {"name": name, "size": len(content), "executable": name.endswith(".sh"), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files],
        **manifest}
    return archive([("manifest.json", json.dumps(manifest).encode()), *files])


class WithPackages(WithRxd):
    def setUp(self):
        super().setUp()
        self.plugins = os.path.join(self.directory, "plugins")
        os.mkdir(self.plugins, 0o755)
        self.environment["RXD_PLUGIN_DIR"] = self.plugins
        self.environment["RXD_PLUGIN_KEYS"] = os.path.join(self.directory, "keys")
        self.environment.pop("RXD_PLUGIN_INDEX", None)

    def put(self, content, name="p.rxdplugin"):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def install(self, content, *options, name="p.rxdplugin"):
        return self.rxd("plugin", "install", self.put(content, name), *options)

    def installed(self, *more, **members):
        result = self.install(package(**members), "--unsigned", *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def refused(self, content, why, *options):
        """Nothing changes."""
        before = self.content()
        result = self.install(content, "--unsigned", *options)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(why, result.stderr)
        self.assertEqual(self.content(), before)

    def content(self):
        found = {}
        for name in os.listdir(self.plugins):
            if not name.endswith(".held"):
                with open(os.path.join(self.plugins, name), "rb") as file:
                    found[name] = file.read()
        return found

    def upper(self):
        """What a pipeline writes that uses the plugin."""
        self.write("p.yaml", FILE % "")
        return self.rxd("run", "--quiet", "p.yaml", input='{"name":"ann"}\n')


class Packing(WithPackages):
    def test_packed_signed_and_installed(self):
        shutil.copy(UPPER, self.directory)
        self.write("LICENSE", "Do as you like.\n")
        pack = ["plugin", "pack", "./upper.sh", "--parameters", "upper: name", "--component", "operator:upper", "--licence", "0BSD",
                "--add", "LICENSE", "--index", "index.json"]
        first = self.rxd(*pack)
        self.assertEqual(first.returncode, 0, first.stderr)
        name = "shell-tools-1.0.0-any.rxdplugin"
        path = os.path.join(self.directory, name)
        with open(path, "rb") as file:
            content = file.read()
        self.assertIn(hashlib.sha256(content).hexdigest(), first.stdout)
        with tarfile.open(path) as tar:
            self.assertEqual(tar.getnames(), ["manifest.json", "upper.sh", "upper.sh.spec", "LICENSE"])
            self.assertTrue(all(member.mtime == 0 and member.uid == 0 and not member.uname for member in tar.getmembers()))
        # The same files give the same bytes, whoever packs them and when.
        os.utime(os.path.join(self.directory, "upper.sh"), (1, 1))
        self.assertEqual(self.rxd(*pack).returncode, 0)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), content)

        with open(os.path.join(self.directory, "index.json"), encoding="utf-8") as file:
            listed, = json.load(file)["packages"]
        self.assertEqual((listed["name"], listed["licence"], listed["file"], listed["size"]), ("shell-tools", "0BSD", name, len(content)))
        found = self.rxd("plugin", "search", "capitals", "--index", "index.json")
        self.assertIn("'rxd plugin install shell-tools' installs it", found.stdout)

        unsigned = self.rxd("plugin", "install", "shell-tools", "--index", "index.json")
        self.assertEqual(unsigned.returncode, 1)
        self.assertIn(f"there is no '{name}.minisig' beside it", unsigned.stderr)
        for key in ("ours", "theirs"):
            subprocess.run(["minisign", "-GW", "-p", f"{key}.pub", "-s", f"{key}.key"], cwd=self.directory, check=True, capture_output=True)
        for options in ([], ["-l"]):
            subprocess.run(["minisign", "-S", *options, "-s", "ours.key", "-m", name], cwd=self.directory, check=True, capture_output=True, input=b"")
            with self.subTest(options):
                wrong = self.rxd("plugin", "install", "shell-tools", "--index", "index.json", "--key", "theirs.pub")
                self.assertEqual(wrong.returncode, 1)
                self.assertIn("none of the trusted ones", wrong.stderr)
                self.assertNotIn("upper.sh", self.content())
                right = self.rxd("plugin", "install", "shell-tools", "--index", "index.json", "--key", "ours.pub")
                self.assertEqual(right.returncode, 0, right.stderr)
                self.assertEqual(self.upper().stdout, '{"name":"ANN"}\n')
                self.assertEqual(self.rxd("plugin", "remove", "shell-tools").returncode, 0)
        # A directory of keys that only this user can write.
        os.mkdir(os.path.join(self.directory, "keys"), 0o755)
        shutil.copy(os.path.join(self.directory, "ours.pub"), os.path.join(self.directory, "keys"))
        self.assertEqual(self.rxd("plugin", "install", f"./{name}").returncode, 0)
        # One changed byte; a changed comment of the signature.
        self.put(content[:-1] + bytes([content[-1] ^ 1]), name)
        self.assertIn("the signature of", self.rxd("plugin", "install", f"./{name}").stderr)
        self.put(content, name)
        with open(path + ".minisig", encoding="utf-8") as file:
            signature = file.read()
        self.put(signature.replace("trusted comment: timestamp", "trusted comment: Timestamp").encode(), name + ".minisig")
        self.assertIn("the comment of the signature", self.rxd("plugin", "install", f"./{name}").stderr)

    def test_what_fails_the_contract_is_not_packed(self):
        self.put(plugin(change=lambda code: code.replace("catch {id: $frame.id, error: .}", "catch {id: 0}")), "upper.sh")
        os.chmod(os.path.join(self.directory, "upper.sh"), 0o755)
        result = self.rxd("plugin", "pack", "./upper.sh", "--parameters", "upper: name")
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not packed: it fails", result.stderr)
        self.assertEqual([name for name in os.listdir(self.directory) if name.endswith(".rxdplugin")], [])


class Installing(WithPackages):
    def test_archives_that_lie_are_refused(self):
        good = package()
        manifest = {"format": 1, "name": "shell-tools", "version": "1.0.0", "contract": 1, "machine": "any", "main": "upper.sh", "components": []}
        digest = hashlib.sha256(b"x").hexdigest()

        def with_files(files, members):
            return archive([("manifest.json", json.dumps({**manifest, "files": files}).encode()), *members])
        one = {"name": "upper.sh", "size": 1, "sha256": digest}
        link = tarfile.TarInfo("upper.sh")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        for name, content, why in [
            ("not an archive", b"PK\3\4", "is not a package"),
            ("cut", good[:200], "is damaged"),
            ("another digest", with_files([one], [("upper.sh", b"y")]), "has another digest"),
            ("longer than it says", with_files([one], [("upper.sh", b"x" * 5000)]), "larger than its manifest says"),
            ("a link", with_files([one], [(link, b"")]), "has another digest"),
            ("one more file", with_files([one], [("upper.sh", b"x"), ("more.so", b"x")]), "which its manifest does not name"),
            ("twice", with_files([one], [("upper.sh", b"x"), ("upper.sh", b"x")]), "each file of its manifest once"),
            ("missing", with_files([one], []), "each file of its manifest once"),
            ("a path", with_files([{**one, "name": "../upper.sh"}], [("../upper.sh", b"x")]), "no usable name"),
            ("hidden", with_files([{**one, "name": ".upper.sh"}], [(".upper.sh", b"x")]), "no usable name"),
            ("an option", with_files([{**one, "name": "--to-command=id"}], [("--to-command=id", b"x")]), "no usable name"),
            ("no manifest first", archive([("upper.sh", b"x")]), "its first file is not manifest.json"),
            ("no JSON", archive([("manifest.json", b"{"), ("upper.sh", b"x")]), "malformed manifest.json"),
            ("a huge manifest", archive([("manifest.json", b" " * (2 << 20))]), "larger than its manifest says"),
            ("a newer format", package(format=2), "has the format 2"),
            ("another machine", package(machine="riscv128"), f"and this machine is {platform.machine()}"),
            ("a newer contract", package(contract=9), "was written for contract 9"),
            ("another name", package(code=plugin(name="others")), "and its plugin says others 1.0.0"),
            ("another version", package(code=plugin(version="1.0.1")), "and its plugin says shell-tools 1.0.1"),
            ("no plugin", package(code=b"#!/bin/sh\nexit 3\n"), "cannot be used"),
        ]:
            with self.subTest(name):
                self.refused(content, why)
        self.installed()
        self.refused(package(code=b"#!/bin/sh\nexit 3\n", version="2.0.0"), "cannot be used")
        self.assertEqual(self.upper().stdout, '{"name":"ANN"}\n')

    def test_files_of_others_stay(self):
        self.put(b"mine", "plugins/upper.sh")
        self.refused(package(), "exists, and no package brought it")
        os.remove(os.path.join(self.plugins, "upper.sh"))
        self.installed()
        self.refused(package(name="others"), "belongs to the plugin shell-tools")

    def test_a_changed_file_is_not_loaded(self):
        self.installed()
        self.assertEqual(self.rxd("plugin", "list").returncode, 0)
        with open(os.path.join(self.plugins, "upper.sh"), "ab") as file:
            file.write(b"\n# changed\n")
        listed = self.rxd("plugin", "list")
        self.assertEqual(listed.returncode, 1)
        self.assertIn("is not the file of shell-tools 1.0.0 that was installed", listed.stdout)
        self.assertNotEqual(self.upper().returncode, 0)
        self.installed()
        self.assertEqual(self.upper().stdout, '{"name":"ANN"}\n')

    def test_the_same_elsewhere_by_the_lock(self):
        self.installed()
        lock = os.path.join(self.plugins, "plugins.lock")
        other = os.path.join(self.directory, "other")
        os.mkdir(other)
        # Its digest is what counts: no signature is needed.
        result = self.rxd("plugin", "install", "--locked", lock, "--plugin-dir", other)
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("upper.sh", "plugins.lock"):
            with open(os.path.join(self.plugins, name), "rb") as one, open(os.path.join(other, name), "rb") as two:
                self.assertEqual(one.read(), two.read())
        self.put(package(version="1.0.1"))
        result = self.rxd("plugin", "install", "--locked", lock, "--plugin-dir", other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("It is not what was installed where the lock was made", result.stderr)

    def test_rolled_back_and_removed(self):
        self.installed()
        before = self.content()
        more = self.installed(version="1.1.0", more=[("table.txt", b"more")])
        self.assertIn("in place of 1.0.0", more.stdout)
        result = self.rxd("plugin", "rollback", "shell-tools")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.content(), before)
        self.assertIn("no version before", self.rxd("plugin", "rollback", "shell-tools").stderr)
        # Only the files of one version before are kept, whatever the later ones have.
        self.installed(version="1.1.0", more=[("table.txt", b"more")])
        self.installed(version="1.2.0")
        self.installed(version="1.3.0")
        self.assertNotIn(".table.txt.before", self.content())
        self.installed()
        self.assertEqual(self.rxd("plugin", "remove", "shell-tools").returncode, 0)
        self.assertIn("there is no operator 'upper'", self.upper().stderr)
        self.assertEqual(self.rxd("plugin", "rollback", "shell-tools").returncode, 0)
        self.assertEqual(self.upper().stdout, '{"name":"ANN"}\n')
        self.assertIn("Did you mean 'shell-tools'?", self.rxd("plugin", "remove", "shell-tool").stderr)

    def test_a_kill_while_it_installs_leaves_one_version(self):
        """Whenever it is killed, the plugin can be used or is said not to be what was installed, and installing again mends it."""
        self.installed()
        path = self.put(package(version="1.1.0"))
        arguments = [os.path.abspath(RXD), "plugin", "install", path, "--unsigned"]
        begin = time.monotonic()
        subprocess.run(arguments, env=self.environment, capture_output=True, check=True)
        whole = time.monotonic() - begin
        for part in range(12):
            self.installed()
            process = subprocess.Popen(arguments, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole * part / 12)
            process.send_signal(signal.SIGKILL)
            process.wait()
            result = self.upper()
            if result.returncode == 0:
                self.assertEqual(result.stdout, '{"name":"ANN"}\n')
            else:
                self.assertIn("that was installed", result.stderr)
            self.installed(version="1.1.0")
            self.assertEqual(self.upper().stdout, '{"name":"ANN"}\n')

    def test_two_at_once(self):
        self.installed()
        with open(os.path.join(self.plugins, ".plugins.lock.held"), "a+", encoding="utf-8") as held:
            import fcntl
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refused(package(version="1.1.0"), "another process is changing the plugins")


class Versions(WithPackages):
    def test_a_file_names_the_versions_it_accepts(self):
        self.installed(version="1.2.0")
        for range, fits in [(">=1.2", True), (">=1.2 <2", True), ("1.2", True), ("<=1.2.0", True), (">1.2", False), (">=1.10", False), ("<1.2.0", False)]:
            with self.subTest(range):
                self.write("p.yaml", FILE % f'plugins: {{ shell-tools: {{ version: "{range}" }} }}\n')
                result = self.rxd("check", "p.yaml")
                if fits:
                    self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
                else:
                    self.assertEqual(result.returncode, 78)
                    self.assertIn("p.yaml:3:36", result.stdout + result.stderr)
                    self.assertIn(f"the plugin 'shell-tools' has version 1.2.0, which is not {range}", result.stdout + result.stderr)
        for text, why in [("{ version: new }", "'new' is not a range of versions"), ("{ version: '>=1', memory: 1GiB }", "has neither 'path' nor 'run'")]:
            self.write("p.yaml", FILE % f"plugins: {{ shell-tools: {text} }}\n")
            result = self.rxd("check", "p.yaml")
            self.assertIn(why, result.stdout + result.stderr)
        self.write("p.yaml", FILE % "plugins: { others: { version: '>=1' } }\n")
        result = self.rxd("check", "p.yaml")
        self.assertIn("no plugin directory has a plugin 'others'", result.stdout + result.stderr)
        self.assertIn("'rxd plugin install others' installs it", result.stdout + result.stderr)

    def test_the_newest_that_fits_comes_from_a_server(self):
        folder = os.path.join(self.directory, "site")
        os.mkdir(folder)
        entries = []
        for version, machine in [("1.9.0", "any"), ("1.10.0", "any"), ("2.0.0", "riscv128"), ("2.0.0-rc1", "any")]:
            content = package(version=version, machine=machine)
            name = f"shell-tools-{version}-{machine}.rxdplugin"
            self.put(content, f"site/{name}")
            entries.append({
                "name": "shell-tools", "version": version, "machine": machine, "contract": 1, "file": name, "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(), "components": []})
        self.put(json.dumps({"format": 1, "packages": entries}).encode(), "site/index.json")

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments):
                super().__init__(*arguments, directory=folder)

            def log_message(self, *arguments):
                pass
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            index = f"http://127.0.0.1:{server.server_address[1]}/index.json"
            for options, version in [(["--version", "<1.10"], "1.9.0"), (["--version", "<2.0.0-a"], "1.10.0"), ([], "2.0.0-rc1")]:
                result = self.rxd("plugin", "install", "shell-tools", "--index", index, "--unsigned", *options)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"installed shell-tools {version}", result.stdout)
            for options, why in [
                (["--version", ">3"], "the index has no version of shell-tools that is >3"),
                (["--version", "2.0.0"], f"was built for riscv128, and this machine is {platform.machine()}"),
            ]:
                result = self.rxd("plugin", "install", "shell-tools", "--index", index, "--unsigned", *options)
                self.assertIn(why, result.stderr)
            self.assertIn("Did you mean 'shell-tools'?", self.rxd("plugin", "install", "shel-tools", "--index", index).stderr)
            self.put(package(version="1.9.1"), "site/shell-tools-1.9.0-any.rxdplugin")
            result = self.rxd("plugin", "install", "shell-tools", "--index", index, "--unsigned", "--version", "1.9.0")
            self.assertIn("The index and the package do not belong together", result.stderr)
            server.shutdown()


class Reloading(WithPackages):
    """A running rxd takes the new version, or goes on with the one before."""

    @contextlib.contextmanager
    def running(self):
        self.write("live.yaml", """
name: live
sources: { in: { file: { path: in.ndjson, decode: json, follow: true } } }
sinks: { out: { from: in, chain: [ { upper: name } ], file: { path: out.ndjson, encode: json } } }
""")
        self.put(b"", "in.ndjson")
        socket = os.path.join(self.directory, "control.sock")
        process = subprocess.Popen(
            [os.path.abspath(RXD), "run", "--state-dir", os.path.join(self.directory, "state"), "--control-socket", socket, "live.yaml"],
            cwd=self.directory, env=self.environment, stderr=subprocess.PIPE, text=True)
        try:
            self.wait(lambda: os.path.exists(socket))
            yield socket
        finally:
            process.terminate()
            process.communicate(timeout=20)

    def wait(self, condition):
        deadline = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not come")
            time.sleep(0.02)

    def sent(self, name):
        """What comes for a name."""
        path = os.path.join(self.directory, "out.ndjson")
        before = os.path.getsize(path) if os.path.exists(path) else 0
        with open(os.path.join(self.directory, "in.ndjson"), "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name}) + "\n")
        self.wait(lambda: os.path.exists(path) and os.path.getsize(path) > before)
        with open(path, encoding="utf-8") as file:
            file.seek(before)
            return json.loads(file.read())["name"]

    def test_only_a_version_that_runs_stays(self):
        self.installed()
        with self.running() as socket:
            self.assertEqual(self.sent("ann"), "ANN")
            down = plugin("1.1.0", change=lambda code: code.replace("ascii_upcase", "ascii_downcase"))
            result = self.install(package(code=down, version="1.1.0"), "--unsigned", "--reload", "--socket", socket)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(self.sent("Bea"), "bea")
            self.assertFalse([name for name in os.listdir(self.plugins) if name.endswith(".before")])
            before = self.content()
            # The next version has no operator of that name, so the pipeline would not compile.
            other = plugin("1.2.0", change=lambda code: code.replace('name: "upper"', 'name: "lower"'))
            result = self.install(package(code=other, version="1.2.0"), "--unsigned", "--reload", "--socket", socket)
            self.assertEqual(result.returncode, 78, result.stderr)
            self.assertIn("The plugin is as it was before", result.stderr)
            self.assertEqual(self.content(), before)
            self.assertEqual(self.sent("Cid"), "cid")
            self.assertEqual(self.rxd("plugin", "remove", "shell-tools", "--reload", "--socket", socket).returncode, 78)
            self.assertEqual(self.content(), before)
        nobody = self.install(package(version="1.3.0"), "--unsigned", "--reload", "--socket", os.path.join(self.directory, "none.sock"))
        self.assertEqual(nobody.returncode, 69)
        self.assertEqual(self.content(), before)


if __name__ == "__main__":
    unittest.main()
