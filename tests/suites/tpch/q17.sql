-- Small-quantity-order revenue.
-- adapted: all containers BOX and half of the average instead of MED BOX of one brand and a fifth.
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
FROM lineitem, part
WHERE
  p_partkey = l_partkey
  AND p_container LIKE '%BOX'
  AND l_quantity < (SELECT 0.5 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)
