"""What packages are made of, without building them."""
import json
import pathlib
import re
import sqlite3
import subprocess
import unittest

import staged


class PreinstTests(unittest.TestCase):
    """A package refuses to replace a newer one whose stores it cannot read."""

    def refuses(self, store_format, *arguments):
        folder = staged.scratch()
        pipelines = folder / "lib/rxd/pipelines"
        pipelines.mkdir(parents=True)
        store = sqlite3.connect(pipelines / "shop.db")
        store.execute("CREATE TABLE meta(key)")
        store.execute(f"PRAGMA user_version = {store_format}")
        store.commit()
        store.close()
        text = (staged.ROOT / "packaging/debian/rxd.preinst.in").read_text()
        text = text.replace("@VERSION@", "1.0-1").replace("@FORMAT@", "2").replace("/var/lib/", f"{folder}/lib/").replace("/run/systemd/system", "/nowhere")
        script = folder / "preinst"
        script.write_text(text.replace("#DEBHELPER#", ""))
        return subprocess.run(["sh", script, *arguments], capture_output=True, text=True, check=False)

    @unittest.skipUnless(staged.has("dpkg"), "needs dpkg")
    def test_a_newer_format_is_refused(self):
        done = self.refuses(3, "upgrade", "1.1-1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("shop.db has the format 3, and rxd 1.0-1 reads up to 2", done.stderr)

    @unittest.skipUnless(staged.has("dpkg"), "needs dpkg")
    def test_others_are_not(self):
        for store_format, arguments in [(2, ["upgrade", "1.1-1"]), (3, ["upgrade", "0.9-1"]), (3, ["upgrade", "1.0-1"]), (3, ["install"])]:
            with self.subTest(arguments=arguments, format=store_format):
                done = self.refuses(store_format, *arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


class PackagingTests(unittest.TestCase):
    def test_the_format_of_stores_is_found(self):
        text = (staged.ROOT / "Sources/Storage/StoreSchema.swift").read_text()
        self.assertRegex(text, r"static let version: Int64 = \d+\n")

    def test_every_plugin_has_a_package(self):
        folder = staged.scratch() / "debian"
        subprocess.run(["cp", "-r", staged.ROOT / "packaging/debian", folder], check=True)
        # A program in Python has no package: what it imports is not in Debian.
        plugins = sorted(path.parent.name for path in (staged.ROOT / "Plugins").glob("*/spec.json") if not path.with_name(path.parent.name + ".py").exists())
        staged.run(staged.ROOT / "scripts/deb-files", folder, "1.0-1", "0", *plugins)
        control = (folder / "control").read_text()
        for name in plugins:
            self.assertIn(f"\nPackage: rxd-plugin-{name}\n", control)
        # Another build has other folders, and says so in these.
        for line in control.split("\n"):
            self.assertLess(len(line), 200)
        self.assertRegex((folder / "rxd.preinst").read_text(), r"\nVERSION=1\.0-1\n(?:.*\n)+FORMAT=\d+\n")

    def test_the_bill_of_materials(self):
        resolved = staged.ROOT / "Package.resolved"
        if not resolved.exists():
            self.skipTest("needs Package.resolved, which a build writes")
        document = json.loads(staged.run(staged.ROOT / "scripts/sbom", "--rxd", staged.PROGRAM))
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        names = {one["name"] for one in document["packages"]}
        pins = {one["identity"] for one in json.loads(resolved.read_text())["pins"]}
        self.assertLessEqual(pins | {"rxd", "swift-runtime"}, names)
        known = {one["SPDXID"] for one in document["packages"]} | {"SPDXRef-DOCUMENT"}
        self.assertEqual(len(known), len(document["packages"]) + 1)
        for relationship in document["relationships"]:
            self.assertLessEqual({relationship["spdxElementId"], relationship["relatedSpdxElement"]}, known)
        for entry in document["packages"]:
            self.assertTrue(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", entry["SPDXID"]), entry["SPDXID"])


if __name__ == "__main__":
    unittest.main()
