SELECT
  auction, bidder, 0.908 * price AS price,
  CASE WHEN HOUR(`at`) BETWEEN 8 AND 18 THEN 'day' WHEN HOUR(`at`) <= 6 OR HOUR(`at`) >= 20 THEN 'night' ELSE 'other' END AS kind,
  CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS letters
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
