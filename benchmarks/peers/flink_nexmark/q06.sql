SELECT
  seller,
  id,
  AVG(`final`) OVER (
    PARTITION BY seller ORDER BY `dateTime` ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
  ) AS average
FROM (
  SELECT
    a.seller,
    a.id,
    b.price AS `final`,
    b.`dateTime`,
    ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC) AS `rank`
  FROM auctions AS a
  JOIN bids AS b ON a.id = b.auction
  WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires
)
WHERE `rank` <= 1
