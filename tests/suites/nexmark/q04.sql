-- Average price for a category.
SELECT category, avg(final) AS average
FROM (
  SELECT max(b.price) AS final, a.category
  FROM auctions a, bids b
  WHERE a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category
