"""The units with each of the drop-ins that are installed for them."""
import shutil
import unittest

import staged


@unittest.skipUnless(staged.has("systemd-analyze"), "needs systemd-analyze, of the package systemd")
class DropInTests(unittest.TestCase):
    def setUp(self):
        self.drop_ins = sorted((staged.stage() / "usr/share/rxd/systemd").glob("*.conf"))
        self.assertGreater(len(self.drop_ins), 5)
        self.folder = staged.scratch()
        for source, name in [("rxd.service", "rxd.service"), ("rxd@.service", "rxd@a.service")]:
            text = (staged.stage() / "usr/lib/systemd/system" / source).read_text().replace("/usr/bin/rxd", "/bin/true")
            (self.folder / name).write_text(text)
        for name in ["rxd-syslog-udp.socket", "rxd-syslog-tcp.socket"]:
            shutil.copy(staged.stage() / "usr/share/rxd/systemd" / name, self.folder)

    def verify(self, unit):
        self.assertEqual(staged.run("systemd-analyze", "verify", self.folder / unit, env={"SYSTEMD_UNIT_PATH": f"{self.folder}:", "PATH": "/usr/bin:/bin"}), "")

    def test_each_is_sound(self):
        for drop_in in self.drop_ins:
            for unit in ["rxd.service", "rxd@a.service"]:
                with self.subTest(drop_in=drop_in.name, unit=unit):
                    place = self.folder / f"{unit}.d"
                    place.mkdir()
                    shutil.copy(drop_in, place)
                    self.verify(unit)
                    shutil.rmtree(place)

    def test_each_says_what_it_is_for(self):
        readme = (staged.ROOT / "docs/install.md").read_text()
        for drop_in in self.drop_ins:
            self.assertRegex(drop_in.read_text(), r"\A# Lets |\A# Gives ", drop_in.name)
            self.assertIn(drop_in.name, readme)

    def test_the_sockets_are_sound(self):
        for name in ["rxd-syslog-udp.socket", "rxd-syslog-tcp.socket"]:
            self.verify(name)

    def test_instances_have_directories_of_their_own(self):
        own, shared = {}, {}
        for unit, found in [("rxd@a.service", own), ("rxd.service", shared)]:
            for line in (self.folder / unit).read_text().splitlines():
                name, _, value = line.partition("=")
                if name in ("StateDirectory", "RuntimeDirectory", "CacheDirectory", "LogsDirectory"):
                    found[name] = value
        self.assertEqual(len(own), 4)
        for name, value in own.items():
            self.assertIn("%i", value)
            # Below a directory of rxd.service it would go with that service.
            self.assertNotIn("/", value)
            self.assertNotEqual(value, shared[name])


if __name__ == "__main__":
    unittest.main()
