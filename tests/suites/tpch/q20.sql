-- Potential part promotion.
-- adapted: the nations of AMERICA instead of CANADA, which has no supplier; names that begin with "l"
-- instead of "forest"; four years instead of one.
SELECT s_name, s_address
FROM supplier, nation
WHERE
  s_suppkey IN (
    SELECT ps_suppkey
    FROM partsupp
    WHERE
      ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'l%')
      AND ps_availqty > (
        SELECT 0.5 * sum(l_quantity)
        FROM lineitem
        WHERE
          l_partkey = ps_partkey
          AND l_suppkey = ps_suppkey
          AND l_shipdate >= DATE '1994-01-01'
          AND l_shipdate < DATE '1994-01-01' + INTERVAL '4' YEAR
      )
  )
  AND s_nationkey = n_nationkey
  AND n_regionkey = 1
ORDER BY s_name
