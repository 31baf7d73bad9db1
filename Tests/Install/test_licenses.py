"""`rxd version --licenses` and the SPDX document name everything that the program consists of, is linked to or loads."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import staged

# Of a debug build: the release program has the Swift runtime in itself.
OF_TOOLCHAIN = re.compile(r"lib(swift|Foundation|_Foundation|dispatch|BlocksRuntime)\w*\.so")


def report(program=staged.PROGRAM):
    return staged.run(program, "version", "--licenses")


def rows(text):
    """The cells of the two tables."""
    return [re.split(r"  +", line.strip()) for line in text.split("\n-----", 1)[0].splitlines() if line.startswith("  ")]


def components():
    return json.loads((staged.ROOT / "packaging/components.json").read_text())


def packages():
    """Swift packages by their names: those of Package.swift, and those that they need."""
    direct = re.findall(r'\.package\(url: "[^"]*/([^/"]+?)(?:\.git)?"', (staged.ROOT / "Package.swift").read_text())
    words = [sys.executable, "-B", "-c", "import json, runpy; print(json.dumps(runpy.run_path('scripts/generate-licenses')['resolved']()))"]
    pins = json.loads(staged.run(*words, cwd=staged.ROOT))
    assert len(direct) > 3 and set(direct) <= set(pins), (direct, pins)
    return pins


def libraries():
    """Libraries in C and C++ by the names of their files, as sources and the program name them."""
    names = set()
    for path in (staged.ROOT / "Sources").rglob("*"):
        if path.suffix in (".c", ".h", ".swift") and not path.name.endswith("+Generated.swift"):
            names |= set(re.findall(r'"(lib[\w+-]+\.so)\.[\d.]+"', path.read_text()))
        elif path.suffix == ".modulemap":
            names |= {f"lib{name}" for name in re.findall(r'\blink "([^"]+)"', path.read_text())}
    manifest = (staged.ROOT / "Package.swift").read_text()
    names |= {f"lib{name}" for name in re.findall(r'linkedLibrary\("([^"]+)"', manifest.split(".testTarget(")[0])}
    needed = re.findall(r"NEEDED\s+(\S+)\.so\b", staged.run("objdump", "-p", staged.PROGRAM))
    names |= {f"{name}.so" for name in needed if not OF_TOOLCHAIN.match(f"{name}.so")}
    assert len(names) > 12, names
    return names


class LicenseTests(unittest.TestCase):
    def test_every_swift_package_is_there(self):
        found = {row[0]: row for row in rows(report())}
        known = {one["name"]: one.get("version") for one in components()["linked"]}
        for name in packages():
            self.assertEqual(found[name][1], known[name])
            self.assertRegex(found[name][1], r"^\d+\.\d+\.\d+$")
            self.assertRegex(found[name][2], r"^Apache-2\.0")

    def test_every_library_is_there(self):
        found = {row[0]: row for row in rows(report())}
        known = {file: one["name"] for one in components()["libraries"] for file in one["files"]}
        for name in libraries():
            # A module map names a library without its suffix, and without what stands before the version.
            owner = known.get(name) or next((known[file] for file in known if re.fullmatch(re.escape(name) + r"(-\d+)?\.so", file)), None)
            self.assertIsNotNone(owner, f"packaging/components.json has no {name}")
            self.assertIn(owner, found)
            row = found[owner]
            self.assertRegex(row[1], r"^\w")
            self.assertRegex(row[2], r"^/.*\.so\.[\d.]+$|^not on this system$", row)
            if row[2] != "not on this system" and pathlib.Path("/usr/share/doc/libc6/copyright").exists():
                self.assertTrue(pathlib.Path(row[3]).is_file(), row)

    def test_headers_whose_functions_are_compiled_in_are_there(self):
        used = set()
        for path in (staged.ROOT / "Sources").rglob("*.[ch]"):
            text = path.read_text()
            if re.search(r"^#define \w*INLINE_ALL\b", text, re.MULTILINE):
                used |= set(re.findall(r"^#include <(\w+\.h)>", text, re.MULTILINE)) & {"xxhash.h"}
        self.assertEqual(used, {one["header"] for one in components()["linked"] if "header" in one})

    def test_every_license_of_a_part_has_its_text(self):
        text = report()
        for one in components()["linked"]:
            for license in re.split(r" WITH | AND | OR ", one["license"]):
                self.assertIn(license, {part["license"] for part in components()["texts"]})
        for part in components()["texts"]:
            self.assertIn((staged.ROOT / part["file"]).read_text().strip("\n"), text)
        for one in components()["linked"]:
            if "notice" in one:
                self.assertIn((staged.ROOT / one["notice"]).read_text().strip("\n"), text)

    def test_the_notices_are_those_of_the_packages(self):
        checkouts = next((folder for folder in (staged.ROOT / ".build/checkouts", staged.ROOT / ".build/dev/checkouts") if folder.is_dir()), None)
        if checkouts is None:
            self.skipTest("the sources of the packages are not here")
        for name in packages():
            notice = next((one.get("notice") for one in components()["linked"] if one["name"] == name), None)
            theirs = checkouts / name / "NOTICE.txt"
            self.assertEqual(theirs.exists(), notice is not None, name)
            if notice:
                self.assertEqual((staged.ROOT / notice).read_text(), theirs.read_text(), name)
            license = (checkouts / name / "LICENSE.txt").read_text()
            self.assertEqual("Runtime Library Exception" in license, "WITH Swift-exception" in next(one["license"] for one in components()["linked"] if one["name"] == name), name)

    def test_the_generated_source_is_fresh(self):
        staged.run(staged.ROOT / "scripts/generate-licenses", "--check")

    def test_a_release_of_a_package_is_no_change_of_the_tree(self):
        """The versions are those of the last `make docs`; only a release compares them with those of the build."""
        root = staged.scratch() / "tree"
        (root / "scripts").mkdir(parents=True)
        for name in ("Sources", "packaging", "LICENSE"):
            (root / name).symlink_to(staged.ROOT / name)
        script = shutil.copy(staged.ROOT / "scripts/generate-licenses", root / "scripts")

        def check(pins, *more):
            (root / "Package.resolved").write_text(json.dumps({"pins": [{"identity": name, "state": {"version": version}} for name, version in pins.items()]}))
            run = subprocess.run([sys.executable, "-B", script, "--check", *more], capture_output=True, text=True)
            return run.returncode, run.stderr

        pins = {one["name"]: one["version"] for one in components()["linked"] if "version" in one}
        self.assertEqual(check(pins, "--versions"), (0, ""))
        pins["swift-log"] = "99.0.0"
        self.assertEqual(check(pins), (0, ""))
        status, errors = check(pins, "--versions")
        self.assertEqual((status, errors), (1, "packaging/components.json is out of date: run make docs\n"))
        status, errors = check({**pins, "swift-more": "1.0.0"})
        self.assertEqual((status, errors), (1, "packaging/components.json lacks swift-more, which the program is linked to\n"))

    def test_licenses_that_came_with_the_program_come_first(self):
        prefix = staged.scratch() / "prefix"
        (prefix / "bin").mkdir(parents=True)
        shutil.copy(staged.PROGRAM, prefix / "bin/rxd")
        own = prefix / "share/doc/rxd/licenses"
        own.mkdir(parents=True)
        (own / "libre2-11").write_text("theirs")
        (own / "libre2-dev").write_text("none of it")
        found = {row[0]: row for row in rows(report(prefix / "bin/rxd"))}
        self.assertEqual(found["libre2"][3], str(own / "libre2-11"))
        self.assertNotEqual(found["libyaml"][3].split("/rxd-install-")[0], str(prefix))

    @unittest.skipUnless(staged.has("dpkg-query") and staged.has("objdump"), "needs dpkg and objdump")
    def test_the_spdx_document_has_the_same_licenses(self):
        document = json.loads(staged.run(staged.ROOT / "scripts/sbom", "--rxd", staged.PROGRAM))
        declared = {one["name"]: one["licenseDeclared"] for one in document["packages"]}
        for one in components()["linked"]:
            self.assertEqual(declared[one["name"]], one["license"])
        self.assertNotIn("NOASSERTION", {declared[name] for name in declared if not OF_TOOLCHAIN.match(name)})


if __name__ == "__main__":
    unittest.main()
