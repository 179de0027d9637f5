SELECT
  b.auction,
  b.bidder,
  b.price,
  b.channel,
  b.url,
  b.`dateTime`,
  b.extra,
  a.`itemName`,
  a.description,
  a.`initialBid`,
  a.reserve,
  a.`dateTime` AS `auction_dateTime`,
  a.expires,
  a.seller,
  a.category,
  a.extra AS auction_extra
FROM (
  SELECT
    auction, bidder, price, channel, url, CAST(`dateTime` AS TIMESTAMP(3)) AS `dateTime`, extra
  FROM bids
) AS b
JOIN (
  SELECT
    id, `itemName`, description, `initialBid`, reserve,
    CAST(`dateTime` AS TIMESTAMP(3)) AS `dateTime`, expires, seller, category, extra
  FROM auctions
) AS a
ON b.auction = a.id
WHERE a.category = 10
