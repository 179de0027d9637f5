SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bids AS b
JOIN (
  SELECT MAX(price) AS maxprice, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS m
ON b.price = m.maxprice
WHERE b.`dateTime` BETWEEN m.starttime AND m.endtime
