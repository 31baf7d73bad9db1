SELECT B.auction, B.bidder, B.price, A.item, A.seller
FROM bid AS B JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10
