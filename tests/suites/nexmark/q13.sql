-- Bounded side input join.
-- adapted: the side input is a table that changes; auctions modulo 100 instead of 10,000.
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bids b
JOIN side_input s ON mod(b.auction, 100) = s.key
