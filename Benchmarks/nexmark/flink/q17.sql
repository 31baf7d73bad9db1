-- changes
SELECT
  auction, DATE_FORMAT(`at`, 'yyyy-MM-dd''T00:00:00Z''') AS `day`, COUNT(*) AS n, MIN(price) AS least, MAX(price) AS most,
  AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS `sum`
FROM bid
GROUP BY auction, DATE_FORMAT(`at`, 'yyyy-MM-dd''T00:00:00Z''')
