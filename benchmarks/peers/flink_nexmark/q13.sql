SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
FROM (SELECT auction, bidder, price, CAST(`dateTime` AS TIMESTAMP(3)) AS `dateTime` FROM bids) AS b
JOIN side_input AS s ON MOD(b.auction, 100) = s.key
