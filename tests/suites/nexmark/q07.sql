-- Highest bid.
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bids b
JOIN (
  SELECT max(price) AS maxprice, window.start AS starttime, window.end AS endtime
  FROM bids
  GROUP BY window(dateTime, '10 seconds')
) m
  ON b.price = m.maxprice
WHERE b.dateTime BETWEEN m.starttime AND m.endtime
