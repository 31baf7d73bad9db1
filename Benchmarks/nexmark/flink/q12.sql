SELECT bidder, COUNT(*) AS n
FROM TABLE(TUMBLE((SELECT bidder, PROCTIME() AS now FROM bid), DESCRIPTOR(now), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
