SELECT B.auction, B.price, B.bidder, B.`at`
FROM (
  SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`at`), INTERVAL '10' SECOND))) AS B
JOIN (
  SELECT MAX(price) AS top, window_start, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end) AS highest
ON B.window_start = highest.window_start AND B.window_end = highest.window_end AND B.price = highest.top
