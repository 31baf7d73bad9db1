"""Proves that the judge finds planted faults."""
import random

from .feeds import HTTPFeed
from .oracle import Judge, line
from .scenarios.kill import DiamondJudge
from .server import ANSWERS, Server


def run():
    """Plants faults in synthetic deliveries; 0 if the judge counts each of them exactly, else 1."""
    failures = sum(not _tell(name, body()) for name, body in (
        ("the diamond's judge", _diamond), ("the scripted server", _server), ("a refusing server", _refused)))
    for name, plant, expected in PLANTS:
        for seed in range(20):
            events = [line(b"a", n, b"xyz") for n in range(1, 1_001)]
            judge = Judge()
            judge.sending(b"a", 1_000)
            judge.promised(b"a", 1, 600)
            judge.promised(b"a", 601, 1_000)
            judge.deliver(b"".join(plant(events, random.Random(seed))))
            verdict = judge.verdict()
            found = {key: getattr(verdict, key) for key in
                     ("lost", "invented", "damaged", "repeated", "longest", "reordered")}
            wanted = {**dict.fromkeys(found, 0), **expected}
            if found != wanted:
                failures += 1
                print(f"FAIL  {name}, seed {seed}: {found} instead of {wanted}")
                break
        else:
            print(f"ok    {name}")
    print("the judge finds everything planted" if not failures else f"{failures} plants are not found")
    return 1 if failures else 0


def _tell(name, problem):
    print(f"FAIL  {name}: {problem}" if problem else f"ok    {name}")
    return not problem


def _diamond():
    """Outputs without a gap are accepted; a missing, a repeated and an impossible one are counted."""
    def output(k, b, c):
        return b'{"k":%d,"b":%s,"c":%s}\n' % (k, line(b"a", b)[:-1], line(b"a", c)[:-1])
    whole = [output(k, 4_999 + k, 5_000) for k in range(1, 101)]
    for outputs, expected in (
            (whole, (0, 0, 0)), (whole[:50] + whole[51:], (2, 0, 0)), (whole[:50] + whole[40:], (0, 10, 0)),
            (whole + [output(101, 5_100, 4_999)], (1, 0, 1)), (whole[:-1], (1, 0, 0))):
        last = 5_100 if len(outputs) == 101 else 5_099
        judge = DiamondJudge()
        judge.sending(b"a", last)
        judge.promised(b"a", 1, last)
        judge.deliver(b"".join(outputs))
        verdict = judge.verdict()
        found = (verdict.lost, verdict.repeated, verdict.invented)
        if found != expected:
            return f"{found} instead of {expected}"
    # A run that starts over may start earlier, but must not send later events before earlier ones.
    late, early = [output(k, 5_100 + k, 5_000) for k in range(1, 50)], [output(k, 5_050 + k, 5_000) for k in range(1, 100)]
    for outputs, expected in ((late + early, 0), (late + early[:10] + early[11:12] + early[10:11] + early[12:], 1)):
        judge = DiamondJudge()
        judge.sending(b"a", 5_200)
        judge.deliver(b"".join(outputs))
        if judge.verdict().reordered != expected:
            return f"{judge.verdict().reordered} reordered instead of {expected}"
    return None


def _server():
    """Each answer of the script is given, and only accepted bodies reach the judge."""
    judge = Judge()
    server = Server(judge, list(ANSWERS), reset_after=100)
    feed = HTTPFeed(judge, "a", server.port)
    feed.timeout = 0.2
    try:
        answers = [feed.post(3) for _ in ANSWERS]
        wanted = [200, 500, 503, 429, None, None, None]
        if answers != wanted:
            return f"{answers} instead of {wanted}"
        delivered = {n for n in range(1, 22) if judge.has(b"a", n)}
        expected = {1, 2, 3, 19, 20, 21}  # The events answered with `200` and `partial`.
        return None if delivered == expected else f"delivered {sorted(delivered)} instead of {sorted(expected)}"
    finally:
        feed.close()
        server.down()


def _refused():
    """A server that is down refuses connections, and answers again when it is up."""
    judge = Judge()
    server = Server(judge)
    feed = HTTPFeed(judge, "a", server.port)
    try:
        first = feed.post(1)
        server.down()
        second, third = feed.post(1), feed.post(1)
        server.up()
        fourth = feed.post(1)
        found = (first, second, third, fourth, judge.verdict().lost)
        return None if found == (200, None, None, 200, 0) else f"{found}"
    finally:
        feed.close()
        server.down()


def _nothing(events, _):
    return events


def _lost(events, chance):
    for n in sorted(chance.sample(range(1_000), 7), reverse=True):
        del events[n]
    return events


def _lost_at_the_end(events, _):
    return events[:-5]


def _all_lost(*_):
    return []


def _repeated(events, chance):
    first = chance.randrange(100, 900)
    return events[:first] + events[first - 40:first] + events[first:]


def _repeated_singly(events, chance):
    for n in sorted(chance.sample(range(0, 1_000, 2), 9), reverse=True):
        events.insert(n + 1, events[n])
    return events


def _bit_flipped(events, chance):
    n = chance.randrange(1_000)
    data = bytearray(events[n])
    place = data.index(b'"sum":') + 6
    data[place] = ord("1") if data[place] != ord("1") else ord("2")
    events[n] = bytes(data)
    return events


def _pad_changed(events, chance):
    n = chance.randrange(1_000)
    events[n] = events[n].replace(b"xyz", b"xyy")
    return events


def _torn(events, chance):
    n = chance.randrange(1_000)
    events[n] = events[n][:chance.randrange(1, len(events[n]) - 2)] + b"\n"
    return events


def _glued(events, chance):
    n = chance.randrange(999)
    events[n] = events[n][:-1]
    return events


def _invented_number(events, chance):
    events.insert(chance.randrange(1_000), line(b"a", 1_001 + chance.randrange(1_000), b"xyz"))
    return events


def _invented_source(events, chance):
    events.insert(chance.randrange(1_000), line(b"b", 1, b"xyz"))
    return events


def _swapped(events, chance):
    n = chance.randrange(999)
    events[n], events[n + 1] = events[n + 1], events[n]
    return events


def _late(events, chance):
    events.insert(900, events.pop(chance.randrange(100)))
    return events


def _in_lists(events, chance):
    n = chance.randrange(0, 900)
    return events[:n] + [b"[" + b",".join(one[:-1] for one in events[n:n + 50]) + b"]\n"] + events[n + 50:]


def _everything(events, chance):
    events = _repeated(events, chance)
    events.append(line(b"a", 2_000))
    events.append(b"{}\n")
    return [one for one in events if one != line(b"a", 5, b"xyz")]


PLANTS = [
    ("nothing planted", _nothing, {}),
    ("lost events", _lost, {"lost": 7}),
    ("lost at the end", _lost_at_the_end, {"lost": 5}),
    ("all lost", _all_lost, {"lost": 1_000}),
    ("a repeated piece", _repeated, {"repeated": 40, "longest": 40}),
    ("repeated single events", _repeated_singly, {"repeated": 9, "longest": 1}),
    ("a wrong checksum", _bit_flipped, {"damaged": 1, "lost": 1}),
    ("a changed member", _pad_changed, {"damaged": 1, "lost": 1}),
    ("a torn line", _torn, {"damaged": 1, "lost": 1}),
    ("two lines in one", _glued, {"damaged": 1, "lost": 2}),
    ("an invented number", _invented_number, {"invented": 1}),
    ("an invented source", _invented_source, {"invented": 1}),
    ("two events swapped", _swapped, {"reordered": 1}),
    ("a late event", _late, {"reordered": 1}),
    ("events in a list", _in_lists, {}),
    ("several at once", _everything, {"repeated": 40, "longest": 40, "invented": 1, "damaged": 1, "lost": 1}),
]
