SELECT counted.auction, counted.n, CAST(counted.window_end AS TIMESTAMP_LTZ(3)) AS `end`
FROM (
  SELECT auction, COUNT(*) AS n, window_start, window_end
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end) AS counted
JOIN (
  SELECT MAX(n) AS top, window_start, window_end
  FROM (
    SELECT COUNT(*) AS n, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end)
  GROUP BY window_start, window_end) AS highest
ON counted.window_start = highest.window_start AND counted.window_end = highest.window_end AND counted.n = highest.top
