SELECT bidder, COUNT(*) AS n, CAST(window_start AS TIMESTAMP_LTZ(3)) AS `from`
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
