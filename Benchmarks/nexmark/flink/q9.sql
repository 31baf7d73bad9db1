-- changes
SELECT auction, price
FROM (
  SELECT A.id AS auction, B.price, ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC) AS place
  FROM auction AS A JOIN bid AS B ON A.id = B.auction AND B.`at` BETWEEN A.`at` AND A.expires)
WHERE place = 1
