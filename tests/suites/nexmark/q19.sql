-- The ten highest bids of each auction.
-- adapted: further columns make the order total.
SELECT *
FROM (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY auction ORDER BY price DESC, dateTime, bidder, channel, url, extra
    ) AS rank
  FROM bids
)
WHERE rank <= 10
