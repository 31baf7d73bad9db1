-- changes
SELECT bidder, auction, price, `at`
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `at` DESC) AS place FROM bid)
WHERE place = 1
