-- changes
SELECT category, AVG(price) AS average
FROM (
  SELECT A.id, A.category, MAX(CAST(B.price AS DOUBLE)) AS price
  FROM auction AS A JOIN bid AS B ON A.id = B.auction AND B.`at` BETWEEN A.`at` AND A.expires
  GROUP BY A.id, A.category)
GROUP BY category
