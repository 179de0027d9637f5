-- Processing time windows.
-- adapted: by event time, so that the answer is defined.
SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
FROM bids
GROUP BY bidder, window(dateTime, '10 seconds')
