-- User sessions.
SELECT
  bidder,
  count(*) AS bid_count,
  session_window.start AS starttime,
  session_window.end AS endtime
FROM bids
GROUP BY bidder, session_window(dateTime, '10 seconds')
