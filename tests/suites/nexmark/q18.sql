-- The last bid of each bidder on each auction.
-- adapted: further columns make the order total.
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY bidder, auction ORDER BY dateTime DESC, price, channel, url, extra
    ) AS rank
  FROM bids
)
WHERE rank <= 1
