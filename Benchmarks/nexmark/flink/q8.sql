SELECT P.id, P.name, TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', P.window_start) / 10 AS `window`
FROM (
  SELECT id, name, window_start, window_end
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end) AS P
JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end) AS A
ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
