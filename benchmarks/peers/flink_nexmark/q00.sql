SELECT auction, bidder, price, `dateTime`, extra FROM bids
