SELECT category, AVG(`final`) AS average
FROM (
  SELECT MAX(b.price) AS `final`, a.category
  FROM auctions AS a, bids AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category
