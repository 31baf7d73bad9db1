"""The results of the queries, computed plainly over all events at once: each function returns the rows as dictionaries, in any
order."""

import collections
import datetime
import re


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def instant(time):
    return datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def grouped(rows, key):
    found = collections.defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def picked(row, *names):
    return {name: row[name] for name in names}


def q0(people, auctions, bids):
    return bids


def q1(people, auctions, bids):
    return [{"auction": b["auction"], "bidder": b["bidder"], "price": b["price"] * 0.908, "at": b["at"]} for b in bids]


def q2(people, auctions, bids):
    return [picked(b, "auction", "price") for b in bids if b["auction"] % 123 == 0]


def q3(people, auctions, bids):
    known = {p["id"]: p for p in people if p["state"] in ("OR", "ID", "CA")}
    return [
        {**picked(known[a["seller"]], "name", "city", "state"), "id": a["id"]}
        for a in auctions if a["category"] == 10 and a["seller"] in known
    ]


def winning(auctions, bids):
    """The highest price of each auction that has a price."""
    known = {a["id"]: a for a in auctions}
    best = {}
    for bid in bids:
        auction = known[bid["auction"]]
        if auction["at"] <= bid["at"] <= auction["expires"]:
            best[bid["auction"]] = max(best.get(bid["auction"], 0), bid["price"])
    return known, best


def q4(people, auctions, bids):
    known, best = winning(auctions, bids)
    prices = grouped(best.items(), lambda item: known[item[0]]["category"])
    return [{"category": category, "average": sum(price for _, price in items) / len(items)} for category, items in prices.items()]


def q5(people, auctions, bids):
    counts = collections.defaultdict(collections.Counter)
    for bid in bids:
        first = int(seconds(bid["at"]) // 2) * 2 + 2
        for end in range(first, first + 10, 2):
            counts[end][bid["auction"]] += 1
    return [
        {"auction": auction, "n": n, "end": instant(end)}
        for end, found in counts.items() for auction, n in found.items() if n == max(found.values())
    ]


def q7(people, auctions, bids):
    rows = []
    for window in grouped(bids, lambda b: seconds(b["at"]) // 10).values():
        top = max(b["price"] for b in window)
        rows += [picked(b, "auction", "price", "bidder", "at") for b in window if b["price"] == top]
    return rows


def q8(people, auctions, bids):
    sold = {(a["seller"], int(seconds(a["at"]) // 10)) for a in auctions}
    rows = [{"id": p["id"], "name": p["name"], "window": int(seconds(p["at"]) // 10)} for p in people]
    return [row for row in rows if (row["id"], row["window"]) in sold]


def q9(people, auctions, bids):
    _, best = winning(auctions, bids)
    return [{"auction": auction, "price": price} for auction, price in best.items()]


def q10(people, auctions, bids):
    return [{**b, "day": b["at"][:10], "minute": b["at"][11:16]} for b in bids]


def q11(people, auctions, bids):
    rows = []
    for bidder, found in grouped(bids, lambda b: b["bidder"]).items():
        times = sorted(b["at"] for b in found)
        first, last, n = times[0], seconds(times[0]), 1
        for time in times[1:]:
            if seconds(time) - last < 10:
                n += 1
            else:
                rows.append({"bidder": bidder, "n": n, "from": first})
                first, n = time, 1
            last = seconds(time)
        rows.append({"bidder": bidder, "n": n, "from": first})
    return rows


def q12(people, auctions, bids):
    """The set of windows depends on the speed, so only their sums are compared."""
    return [{"bidder": bidder, "n": n} for bidder, n in collections.Counter(b["bidder"] for b in bids).items()]


def q12_compared(rows):
    sums = collections.Counter()
    for row in rows:
        sums[row["bidder"]] += row["n"]
    return [{"bidder": bidder, "n": n} for bidder, n in sums.items()]


def q13(people, auctions, bids):
    return [{**picked(b, "auction", "bidder", "price"), "value": f"side {b['auction']}"} for b in bids if b["auction"] < 6000]


def q14(people, auctions, bids):
    rows = []
    for bid in bids:
        price = bid["price"] * 0.908
        if 1000000 < price < 50000000:
            hour = int(bid["at"][11:13])
            kind = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
            rows.append({**picked(bid, "auction", "bidder"), "price": price, "kind": kind, "letters": bid["extra"].count("c")})
    return rows


def figures(bids):
    return {
        "n": len(bids), "low": sum(b["price"] < 10000 for b in bids), "middle": sum(10000 <= b["price"] < 1000000 for b in bids),
        "high": sum(b["price"] >= 1000000 for b in bids), "bidders": len({b["bidder"] for b in bids}),
        "auctions": len({b["auction"] for b in bids}),
    }


def q15(people, auctions, bids):
    return [{"day": day + "T00:00:00Z", **figures(found)} for day, found in grouped(bids, lambda b: b["at"][:10]).items()]


def q16(people, auctions, bids):
    days = grouped(bids, lambda b: (b["channel"], b["at"][:10]))
    return [{"channel": channel, "day": day + "T00:00:00Z", **figures(found)} for (channel, day), found in days.items()]


def q17(people, auctions, bids):
    rows = []
    for (auction, day), found in grouped(bids, lambda b: (b["auction"], b["at"][:10])).items():
        prices = [b["price"] for b in found]
        rows.append({
            "auction": auction, "day": day + "T00:00:00Z", "n": len(prices), "least": min(prices), "most": max(prices),
            "mean": sum(prices) / len(prices), "sum": sum(prices),
        })
    return rows


def q18(people, auctions, bids):
    """By event time; among equal times the later bid."""
    last = {}
    for bid in bids:
        key = (bid["bidder"], bid["auction"])
        if key not in last or last[key]["at"] <= bid["at"]:
            last[key] = bid
    return [picked(bid, "bidder", "auction", "price", "at") for bid in last.values()]


def q19(people, auctions, bids):
    return [
        picked(bid, "auction", "id", "bidder", "price")
        for found in grouped(bids, lambda b: b["auction"]).values() for bid in sorted(found, key=lambda b: -b["price"])[:10]
    ]


def q20(people, auctions, bids):
    known = {a["id"]: a for a in auctions if a["category"] == 10}
    return [
        {**picked(b, "auction", "bidder", "price"), **picked(known[b["auction"]], "item", "seller")}
        for b in bids if b["auction"] in known
    ]


def q21(people, auctions, bids):
    ids = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    rows = []
    for bid in bids:
        found = re.search("channel_id=([^&]*)", bid["url"])
        name = ids.get(bid["channel"].lower(), found.group(1) if found else "")
        if name:
            rows.append({**picked(bid, "auction", "bidder"), "channel_id": name})
    return rows


def q22(people, auctions, bids):
    return [dict(zip(("auction", "dir1", "dir2", "dir3"), [b["auction"], *b["url"].split("/")[3:6]])) for b in bids]
