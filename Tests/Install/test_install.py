"""`make install` and `make uninstall`."""
import os
import stat
import unittest

import staged


class InstallTests(unittest.TestCase):
    def test_everything_is_there(self):
        stage = staged.stage()
        for path in [
            "usr/bin/rxd", "usr/lib/systemd/system/rxd.service", "usr/lib/systemd/system/rxd@.service", "usr/lib/systemd/system/rxd-standby.service", "usr/lib/sysusers.d/rxd.conf",
            "usr/lib/tmpfiles.d/rxd.conf", "usr/share/rxd/systemd/read-logs.conf", "usr/share/rxd/examples/access-log.yaml",
            "usr/share/man/man1/rxd.1", "usr/share/man/man1/rxd-run.1", "usr/share/man/man5/rxd.yaml.5", "usr/share/man/man7/rxd-plugin.7",
            "usr/share/bash-completion/completions/rxd", "usr/share/zsh/site-functions/_rxd", "usr/share/fish/vendor_completions.d/rxd.fish",
            "usr/include/rxd_plugin.h", "usr/share/rxd/RxdPlugin/Package.swift", "usr/share/rxd/python/rxd_plugin.py",
            "usr/share/doc/rxd/README.md", "usr/share/doc/rxd/docs/install.md", "etc/default/rxd",
        ]:
            self.assertTrue((stage / path).is_file(), path)
            self.assertGreater((stage / path).stat().st_size, 0, path)
        for path in ["etc/rxd/pipelines", "usr/lib/rxd/plugins"]:
            self.assertTrue((stage / path).is_dir(), path)
        self.assertEqual(stat.S_IMODE((stage / "etc/rxd/secrets").stat().st_mode), 0o700)

    def test_the_list_is_complete(self):
        stage = staged.stage()
        listed = set((stage / "usr/share/rxd/manifest").read_text().splitlines())
        self.assertEqual(listed | {"/usr/share/rxd/manifest"}, set(staged.files(stage)))

    def test_everyone_can_read_it(self):
        stage = staged.stage()
        for path in staged.files(stage):
            status = (stage / path[1:]).lstat()
            self.assertFalse(stat.S_ISLNK(status.st_mode), path)
            if path != "/etc/rxd/secrets/":
                executable = path.endswith("/") or path == "/usr/bin/rxd"
                self.assertEqual(stat.S_IMODE(status.st_mode), 0o755 if executable else 0o644, path)

    def test_uninstall_leaves_nothing(self):
        for variables in [
            {"DESTDIR": "stage", "PREFIX": "/usr"}, {"DESTDIR": "stage", "PREFIX": "/usr/local"},
            {"DESTDIR": "a stage", "PREFIX": "/opt/rxd", "SYSCONFDIR": "/etc"}, {"PREFIX": "home/ada/x"},
        ]:
            with self.subTest(**variables):
                folder = staged.scratch()
                there = {
                    name: f"{folder}/{value}" if name == "DESTDIR" or not value.startswith("/") else value
                    for name, value in variables.items()}
                staged.install(**there)
                self.assertGreater(len(staged.files(folder)), 100)
                if variables["PREFIX"] == "/usr":
                    # Again over the first one, as an upgrade.
                    staged.install(**there)
                staged.install("uninstall", **there)
                base = variables.get("DESTDIR") or variables["PREFIX"]
                parts = base.split("/")
                self.assertEqual(staged.files(folder), ["/" + "/".join(parts[:n + 1]) + "/" for n in range(len(parts))])

    def test_what_belongs_to_the_user_stays(self):
        folder = staged.scratch()
        staged.install(DESTDIR=folder, PREFIX="/usr")
        own = [folder / "etc/rxd/pipelines/own.yaml", folder / "usr/lib/rxd/plugins/own.so", folder / "etc/default/rxd"]
        for path in own:
            path.write_text("X=1\n")
        staged.install(DESTDIR=folder, PREFIX="/usr")
        self.assertEqual(own[2].read_text(), "X=1\n")
        staged.install("uninstall", DESTDIR=folder, PREFIX="/usr")
        self.assertEqual([path for path in staged.files(folder) if not path.endswith("/")], sorted(str(path)[len(str(folder)):] for path in own))

    def test_files_of_an_earlier_version_go(self):
        folder = staged.scratch()
        staged.install(DESTDIR=folder, PREFIX="/usr")
        old = folder / "usr/share/rxd/old/gone.txt"
        old.parent.mkdir()
        old.write_text("")
        manifest = folder / "usr/share/rxd/manifest"
        manifest.write_text(manifest.read_text() + "/usr/share/rxd/old/\n/usr/share/rxd/old/gone.txt\n")
        staged.install(DESTDIR=folder, PREFIX="/usr")
        self.assertFalse(old.parent.exists())
        self.assertNotIn("gone", manifest.read_text())

    def test_texts_name_the_prefix(self):
        folder = staged.scratch()
        prefix = f"{folder}/x"
        staged.install(PREFIX=prefix)
        for path in ["lib/systemd/system/rxd.service", "lib/systemd/system/rxd@.service", "lib/systemd/system/rxd-standby.service", "lib/tmpfiles.d/rxd.conf", "share/man/man1/rxd.1"]:
            text = (folder / "x" / path).read_text()
            for word in ["/usr/bin/rxd", "/usr/share/rxd", " /etc/rxd", "=/etc/", "-/etc/", "=-/etc/"]:
                self.assertNotIn(word, text, path)
        self.assertIn(f"ExecStart={prefix}/bin/rxd run --config-dir {prefix}/etc/rxd/pipelines\n", (folder / "x/lib/systemd/system/rxd.service").read_text())
        # `rxd plugin new --language swift` finds the package of the installation.
        if os.access(folder / "x/bin/rxd", os.X_OK):
            self.assertIn("0.1", staged.run(folder / "x/bin/rxd", "version"))


if __name__ == "__main__":
    unittest.main()
