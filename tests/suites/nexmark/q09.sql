-- Winning bids.
-- adapted: further columns make the order total.
SELECT
  id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
  auction, bidder, price, bid_dateTime, bid_extra
FROM (
  SELECT
    a.*,
    b.auction,
    b.bidder,
    b.price,
    b.dateTime AS bid_dateTime,
    b.extra AS bid_extra,
    row_number() OVER (
      PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder, b.channel, b.url, b.extra
    ) AS rank
  FROM auctions a
  JOIN bids b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires
)
WHERE rank <= 1
