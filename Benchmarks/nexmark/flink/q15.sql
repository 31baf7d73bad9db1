-- changes
SELECT
  DATE_FORMAT(`at`, 'yyyy-MM-dd''T00:00:00Z''') AS `day`, COUNT(*) AS n, COUNT(*) FILTER (WHERE price < 10000) AS low,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle, COUNT(*) FILTER (WHERE price >= 1000000) AS high,
  COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT auction) AS auctions
FROM bid
GROUP BY DATE_FORMAT(`at`, 'yyyy-MM-dd''T00:00:00Z''')
