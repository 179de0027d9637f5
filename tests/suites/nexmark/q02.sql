-- Selection.
-- adapted: every 7th auction instead of every 123rd.
SELECT auction, price FROM bids WHERE mod(auction, 7) = 0
