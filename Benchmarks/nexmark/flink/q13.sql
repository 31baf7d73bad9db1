SELECT B.auction, B.bidder, B.price, S.`value` FROM bid AS B JOIN side AS S ON B.auction = S.key
