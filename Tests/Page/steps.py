"""Pipelines of many steps, and the times at which the page shows new counts of them."""


def many(count):
    """A pipeline with this many steps, which follows the file INPUT."""
    lines = ["name: many", "sources: { typed: { file: { path: 'INPUT', follow: true } } }", "signals:"]
    for branch in range(count // 10):
        lines += [f"  branch{branch}:", "    from: typed", "    chain:"] + ["      - filter: size(event) > 1", "      - map: event"] * 4
    lines += ["sinks:"] + [f"  out{branch}: {{ from: branch{branch}, discard: {{}} }}" for branch in range(count // 10)]
    return "\n".join(lines) + "\n"


#: Records in `window.seen` each refresh of the page: its time, in milliseconds, and the state text shown, which ends with the time of the counts.
NOTE_REFRESHES = """
  window.seen = [];
  const state = document.getElementById('state');
  new MutationObserver(() => window.seen.push([performance.now(), state.textContent]))
    .observe(state, { childList: true, characterData: true, subtree: true });"""
