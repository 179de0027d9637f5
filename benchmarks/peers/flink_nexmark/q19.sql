SELECT *
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS `rank`
  FROM bids
)
WHERE `rank` <= 10
