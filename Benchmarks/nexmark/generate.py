"""Events of the Nexmark benchmark: people, auctions and bids of an online auction house, as three files of JSON lines.

The proportions are those of Nexmark: of fifty events one is a person, three are auctions and 46 are bids. The same seed gives the same events.
"""

import datetime
import json
import os
import random

STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
FIRST = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
BEGIN = datetime.datetime(2026, 3, 1, 11, 59, 30, tzinfo=datetime.timezone.utc)
FIRST_ID = 1000


def instant(milliseconds):
    return (BEGIN + datetime.timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def events(count, seed, jitter=0):
    """Pairs of a kind and an event, `count` of them, one per millisecond. Times are at most `jitter` milliseconds behind the greatest one so
    far."""
    chance = random.Random(seed)
    people, auctions = 0, 0
    for number in range(count):
        at = number - (chance.randrange(jitter + 1) if jitter else 0)
        time = instant(max(at, 0))
        kind = number % 50
        if kind == 0:
            name = f"{chance.choice(FIRST)} {chance.choice(LAST)}"
            place = chance.randrange(len(CITIES))
            yield "person", {
                "id": FIRST_ID + people, "name": name, "email": name.lower().replace(" ", "@") + ".com",
                "card": " ".join(str(chance.randrange(1000, 9999)) for _ in range(4)), "city": CITIES[place],
                "state": STATES[place % len(STATES)], "at": time,
            }
            people += 1
        elif kind < 4:
            initial = chance.randrange(1, 1000)
            yield "auction", {
                "id": FIRST_ID + auctions, "item": f"item {auctions}", "description": "".join(chance.choices("abcdef ", k=60)),
                "initialBid": initial, "reserve": initial + chance.randrange(1000), "at": time,
                "expires": instant(max(at, 0) + chance.randrange(1, 20000)),
                "seller": FIRST_ID + max(0, people - 1 - chance.randrange(min(people, 100))), "category": 10 + chance.randrange(5),
            }
            auctions += 1
        else:
            # Half of the bids go to one hot auction among the newest hundred.
            newest = auctions - 1
            hot = newest // 100 * 100 if chance.random() < 0.5 else max(0, newest - chance.randrange(100))
            hot_bidder = (people - 1) // 100 * 100 if chance.random() < 0.25 else max(0, people - 1 - chance.randrange(1000))
            channel = chance.choice(CHANNELS) if chance.random() < 0.5 else f"channel-{chance.randrange(1000)}"
            url = f"https://www.nexmark.com/{chance.randrange(1 << 20):x}/{chance.choice(['a', 'bc', 'def'])}/item.htm?query=1"
            if channel.startswith("channel-") and chance.random() < 0.9:
                url += f"&channel_id={channel[8:]}"
            yield "bid", {
                "id": number, "auction": FIRST_ID + hot, "bidder": FIRST_ID + max(0, hot_bidder),
                "price": int(10 ** (chance.random() * 6) * 100), "channel": channel, "url": url, "at": time,
                "extra": "".join(chance.choices("abcdefghij", k=40)),
            }


def write(folder, count, seed=1, jitter=0):
    """Writes people.ndjson, auctions.ndjson and bids.ndjson; returns the events by kind."""
    found = {"person": [], "auction": [], "bid": []}
    for kind, event in events(count, seed, jitter):
        found[kind].append(event)
    for kind, name in (("person", "people"), ("auction", "auctions"), ("bid", "bids")):
        with open(os.path.join(folder, name + ".ndjson"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in found[kind])
    with open(os.path.join(folder, "side.ndjson"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"key": key, "value": f"side {key}"}, separators=(",", ":")) + "\n" for key in range(FIRST_ID, FIRST_ID + 5000))
    return found
