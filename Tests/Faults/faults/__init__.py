"""Kills, cuts and starves rxd, and judges what it delivered; `Tests/Faults/run --help` says how."""
