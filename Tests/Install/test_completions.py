"""The shells find the completions where they are installed, and complete verbs, options and pipeline files."""
import os
import unittest

import staged


class CompletionTests(unittest.TestCase):
    def setUp(self):
        self.share = staged.stage() / "usr/share"
        self.folder = staged.scratch()
        (self.folder / "alerts.yaml").write_text("")
        # The shells ask the installed program.
        self.environment = {
            **os.environ, "PATH": f"{staged.stage()}/usr/bin:{os.environ['PATH']}", "XDG_DATA_DIRS": f"{self.share}:/usr/share",
            "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}

    def shell(self, *words):
        return staged.run(*words, env=self.environment, cwd=self.folder, timeout=60)

    @unittest.skipUnless(staged.has("bash"), "needs bash")
    def test_bash(self):
        script = self.share / "bash-completion/completions/rxd"
        complete = f"""
        if [ -r /usr/share/bash-completion/bash_completion ]; then
          . /usr/share/bash-completion/bash_completion
          __load_completion rxd || exit 3
        else
          . {script}
        fi
        complete -p rxd
        try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=(); _rxd rxd "${{@: -1}}" ""; echo "$*: ${{COMPREPLY[*]}}"; }}
        try rxd ch
        try rxd run --sta
        try rxd al
        """
        text = self.shell("bash", "--norc", "--noprofile", "-c", complete)
        self.assertIn("rxd ch: check", text)
        self.assertIn("--state-dir", text)
        self.assertIn("rxd al: alerts.yaml", text)

    @unittest.skipUnless(staged.has("zsh"), "needs zsh")
    def test_zsh(self):
        text = self.shell(
            "zsh", "-f", "-c",
            f"fpath=({self.share}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[rxd]; autoload +X _rxd && print loaded")
        self.assertEqual(text.split(), ["_rxd", "loaded"])
        staged.run("zsh", "-n", self.share / "zsh/site-functions/_rxd")

    @unittest.skipUnless(staged.has("fish"), "needs fish")
    def test_fish(self):
        text = self.shell("fish", "--no-config", "-c", f"source {self.share}/fish/vendor_completions.d/rxd.fish; complete -C 'rxd ch'; complete -C 'rxd run --sta'")
        self.assertIn("check\t", text)
        self.assertIn("--state-dir", text)


if __name__ == "__main__":
    unittest.main()
