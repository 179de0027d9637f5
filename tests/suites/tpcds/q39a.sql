-- Items whose stock varies much, in a month and in the next.
-- adapted: coefficients are rounded, because floating-point sums depend on their order;
-- quarters instead of months; a smaller coefficient; output columns have names of their own.
WITH inv AS (
  SELECT
    w_warehouse_name,
    w_warehouse_sk,
    i_item_sk,
    d_qoy,
    round(stdev, 6) AS stdev,
    mean,
    round(CASE mean WHEN 0 THEN NULL ELSE stdev / mean END, 6) AS cov
  FROM (
    SELECT
      w_warehouse_name,
      w_warehouse_sk,
      i_item_sk,
      d_qoy,
      stddev_samp(inv_quantity_on_hand) AS stdev,
      avg(inv_quantity_on_hand) AS mean
    FROM inventory, item, warehouse, date_dim
    WHERE
      inv_item_sk = i_item_sk
      AND inv_warehouse_sk = w_warehouse_sk
      AND inv_date_sk = d_date_sk
      AND d_year = 2000
    GROUP BY w_warehouse_name, w_warehouse_sk, i_item_sk, d_qoy
  ) foo
  WHERE round(CASE mean WHEN 0 THEN 0 ELSE stdev / mean END, 6) > 0.2
)
SELECT
  inv1.w_warehouse_sk AS sk1,
  inv1.i_item_sk AS item1,
  inv1.d_qoy AS qoy1,
  inv1.mean AS mean1,
  inv1.cov AS cov1,
  inv2.w_warehouse_sk AS sk2,
  inv2.i_item_sk AS item2,
  inv2.d_qoy AS qoy2,
  inv2.mean AS mean2,
  inv2.cov AS cov2
FROM inv inv1, inv inv2
WHERE
  inv1.i_item_sk = inv2.i_item_sk
  AND inv1.w_warehouse_sk = inv2.w_warehouse_sk
  AND inv1.d_qoy = 1
  AND inv2.d_qoy = 1 + 1
ORDER BY sk1, item1, qoy1, mean1, cov1, qoy2, mean2, cov2
