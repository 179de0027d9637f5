SELECT auction, price FROM bids WHERE MOD(auction, 7) = 0
