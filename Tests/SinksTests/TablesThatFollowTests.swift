import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing
import Transport

/// SQLite tables that follow changing results, and the Nexmark queries that need them.
@Suite(.serialized, .enabled(if: SQLiteShell.isInstalled, "needs sqlite3")) struct TablesThatFollowTests {
  let scratch = Scratch()
  private var path: String { scratch("a.db") }
  private var shell: SQLiteShell { SQLiteShell(path) }

  private struct Bid {
    var auction: Int
    var bidder: Int
    var price: Int
    var at: Int
    var text: String { "{\"auction\":\(auction),\"bidder\":\(bidder),\"price\":\(price),\"at\":\(at)}" }
  }

  private struct Auction {
    var id: Int
    var category: Int
    var at: Int
    var expires: Int
    var text: String { "{\"id\":\(id),\"category\":\(category),\"at\":\(at),\"expires\":\(expires)}" }
  }

  /// After any row, retracted or not, the table has the three greatest values of each key.
  @Test(arguments: [1, 7, 100]) func theTableEqualsTheResult(_ batch: Int) throws {
    for seed in 0..<3 {
      try? FileManager.default.removeItem(atPath: path)
      var random = SplitMix(UInt64(seed))
      let events = (0..<200).map { (k: random.below(4), n: random.below(50), i: $0) }
      let list = events.map { "{ k: \($0.k), n: \($0.n), i: \($0.i) }" }.joined(separator: ", ")
      let running = try RealPipeline(
        """
        sources: { in: { values: [ \(list) ] } }
        sinks:
          tops:
            from: in
            chain: [ { topN: { by: event.n, count: 3, per: event.k } } ]
            sqlite: { path: '\(path)', table: t, mode: upsert, key: [k, i], batch: \(batch), columns: { k: event.k, n: event.n, i: event.i }, create: 'CREATE TABLE IF NOT EXISTS t(k, n, i, PRIMARY KEY (k, i))' }
          sums:
            from: in
            chain:
              - groupBy: { key: event.i % 9, chain: [ { aggregate: { figures: { g: meta.key, n: sum(event.n) }, emit: { update: 0s, pairs: true } } } ] }
              - groupBy: { key: event.n % 5, chain: [ { aggregate: { figures: { m: meta.key, n: sum(event.n), c: count() }, emit: update } } ] }
            sqlite: { path: '\(scratch("b.db"))', table: s, mode: upsert, key: m, batch: \(batch), columns: { m: event.m, n: event.n, c: event.c }, create: 'CREATE TABLE IF NOT EXISTS s(m PRIMARY KEY, n, c)' }
        """)
      #expect(running.runToEnd() == .completed)
      #expect(running.counters.rejected == 0)
      var wanted: [String] = []
      for key in 0..<4 {
        let ranked = events.filter { $0.k == key }.sorted { $0.n != $1.n ? $0.n > $1.n : $0.i < $1.i }
        wanted += ranked.prefix(3).map { "\($0.k)|\($0.n)|\($0.i)" }
      }
      #expect(try shell.run("SELECT k, n, i FROM t ORDER BY k, n DESC, i;") == wanted.joined(separator: "\n"))
      var sums: [Int: Int] = [:]
      for event in events { sums[event.i % 9, default: 0] += event.n }
      var classes: [Int: (Int, Int)] = [:]
      for sum in sums.values { classes[sum % 5] = ((classes[sum % 5]?.0 ?? 0) + sum, (classes[sum % 5]?.1 ?? 0) + 1) }
      #expect(
        try SQLiteShell(scratch("b.db")).run("SELECT m, n, c FROM s ORDER BY m;")
          == classes.sorted { $0.key < $1.key }.map { "\($0.key)|\($0.value.0)|\($0.value.1)" }.joined(separator: "\n"))
      try FileManager.default.removeItem(atPath: scratch("b.db"))
    }
  }

  /// Without `mode: upsert` a retracted row is inserted like any other.
  @Test func aHistoryHasEveryRow() throws {
    let running = try RealPipeline(
      """
      sources: { in: { values: [ 1, 2 ] } }
      sinks:
        all:
          from: in
          chain: [ { aggregate: { figures: sum(event), emit: { update: 0s, pairs: true } } } ]
          sqlite: { path: '\(path)', table: t, columns: { n: event, back: meta.retracts, pane: meta.pane }, create: 'CREATE TABLE IF NOT EXISTS t(n, back, pane)' }
      """)
    #expect(running.runToEnd() == .completed)
    #expect(try shell.run("SELECT n, back, pane FROM t ORDER BY rowid;") == "1|0|early\n1|1|early\n3|0|early")
  }

  /// A join's rows without a partner are deleted when the partner comes, and what remains is what has none.
  @Test(arguments: [1, 100]) func aJoinCorrectsItsRows(_ batch: Int) throws {
    let running = try RealPipeline(
      """
      sources:
        orders: { values: [ { id: 1 }, { id: 2 }, { id: 3 } ] }
        payments: { values: { list: [ { of: 3, n: 30 }, { of: 9, n: 90 }, { of: 1, n: 10 } ], every: 5ms } }
      sinks:
        out:
          from: orders
          chain: [ { join: { signal: payments, within: 1h, key: event.id, otherKey: other.of, unmatched: full, emit: update, reduce: { id: "event == null ? other.of : event.id", n: "other == null ? 0 : other.n" } } } ]
          sqlite: { path: '\(path)', table: t, mode: upsert, key: id, batch: \(batch), columns: { id: event.id, n: event.n, pane: meta.pane }, create: 'CREATE TABLE IF NOT EXISTS t(id PRIMARY KEY, n, pane)' }
      """)
    #expect(running.runToEnd() == .completed)
    #expect(
      try shell.run("SELECT id, n, pane FROM t ORDER BY id;") == "1|10|on-time\n2|0|early\n3|30|on-time\n9|90|early")
  }

  // MARK: Nexmark

  private func run(_ query: String, _ auctions: [Auction], _ bids: [Bid]) throws -> String {
    let file = URL(filePath: #filePath).deletingLastPathComponent().appending(
      path: "../../pipelines/nexmark/\(query).yaml")
    try auctions.map(\.text).joined(separator: "\n").write(
      toFile: scratch("auctions.ndjson"), atomically: true, encoding: .utf8)
    try bids.map(\.text).joined(separator: "\n").write(
      toFile: scratch("bids.ndjson"), atomically: true, encoding: .utf8)
    let running = try RealPipeline(
      String(contentsOf: file, encoding: .utf8),
      environment: [
        "AUCTIONS": scratch("auctions.ndjson"), "BIDS": scratch("bids.ndjson"), "TABLES": path,
      ])
    #expect(running.runToEnd() == .completed)
    #expect(running.counters.rejected == 0)
    return try shell.run(
      "SELECT * FROM \(query) ORDER BY 1, 2, 3, 4;".replacing(
        ", 3, 4", with: query == "q4" ? "" : query == "q9" ? ", 3" : ", 3, 4"))
  }

  private static func market() -> ([Auction], [Bid]) {
    var random = SplitMix(5)
    let auctions = (0..<12).map { id in
      let at = random.below(200)
      return Auction(id: id, category: 10 + random.below(3), at: at, expires: at + 50 + random.below(300))
    }
    var prices: Set<Int> = []
    let bids = (0..<400).map { at in
      var price = random.below(100_000)
      while !prices.insert(price).inserted { price += 1 }
      return Bid(auction: random.below(12), bidder: random.below(8), price: price, at: at)
    }
    return (auctions, bids)
  }

  private static func winners(_ auctions: [Auction], _ bids: [Bid]) -> [(Auction, Bid)] {
    auctions.compactMap { auction in
      bids.filter { $0.auction == auction.id && $0.at >= auction.at && $0.at <= auction.expires }
        .max { $0.price < $1.price }.map { (auction, $0) }
    }
  }

  @Test func averageOfTheWinningPricesOfACategory() throws {
    let (auctions, bids) = Self.market()
    var prices: [Int: [Int]] = [:]
    for (auction, bid) in Self.winners(auctions, bids) { prices[auction.category, default: []].append(bid.price) }
    let wanted = prices.sorted { $0.key < $1.key }.map { category, prices in
      (category, Double(prices.reduce(0, +)) / Double(prices.count))
    }
    let got = try run("q4", auctions, bids).split(separator: "\n").map { $0.split(separator: "|") }
    #expect(got.map { String($0[0]) } == wanted.map { "\($0.0)" })
    for (row, (_, average)) in zip(got, wanted) {
      #expect(abs((Double(String(row[1])) ?? 0) - average) < 0.001, "\(row)")
    }
  }

  @Test func winningBidOfEachAuction() throws {
    let (auctions, bids) = Self.market()
    let wanted = Self.winners(auctions, bids).map { "\($0.id)|\($1.bidder)|\($1.price)" }
    #expect(try run("q9", auctions, bids) == wanted.joined(separator: "\n"))
  }

  @Test func lastBidOfEachBidder() throws {
    let (auctions, bids) = Self.market()
    var last: [[Int]: Bid] = [:]
    for bid in bids { last[[bid.bidder, bid.auction]] = bid }
    let wanted = last.values.sorted { ($0.bidder, $0.auction) < ($1.bidder, $1.auction) }
      .map { "\($0.bidder)|\($0.auction)|\($0.price)|\($0.at)" }
    #expect(try run("q18", auctions, bids) == wanted.joined(separator: "\n"))
  }

  @Test func tenHighestBidsOfEachAuction() throws {
    let (auctions, bids) = Self.market()
    let wanted = auctions.flatMap { auction in
      bids.filter { $0.auction == auction.id }.sorted { $0.price > $1.price }.prefix(10)
        .sorted { ($0.auction, $0.bidder, $0.price, $0.at) < ($1.auction, $1.bidder, $1.price, $1.at) }
    }.map { "\($0.auction)|\($0.bidder)|\($0.price)|\($0.at)" }
    #expect(try run("q19", auctions, bids) == wanted.joined(separator: "\n"))
  }
}
