SELECT auction, bidder, 0.908 * price AS price, `at` FROM bid
