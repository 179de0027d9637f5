-- Average selling price by seller, over the last ten auctions.
-- adapted: further columns make both orders total.
SELECT
  seller,
  id,
  avg(final) OVER (
    PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
  ) AS average
FROM (
  SELECT
    a.seller,
    a.id,
    b.price AS final,
    b.dateTime,
    row_number() OVER (
      PARTITION BY a.id, a.seller
      ORDER BY b.price DESC, b.dateTime, b.bidder, b.channel, b.url, b.extra
    ) AS rank
  FROM auctions a
  JOIN bids b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires
)
WHERE rank = 1
