-- Items in stock that are sold from the catalog.
-- adapted: wider stock.
SELECT i_item_id, i_item_desc, i_current_price
FROM item, inventory, date_dim, catalog_sales
WHERE
  i_current_price BETWEEN 20 AND 20 + 50
  AND inv_item_sk = i_item_sk
  AND d_date_sk = inv_date_sk
  AND d_date BETWEEN DATE '2000-02-01' AND DATE '2000-02-01' + INTERVAL '60' DAY
  AND i_manufact_id IN (1, 2, 3, 4, 5)
  AND inv_quantity_on_hand BETWEEN 100 AND 800
  AND cs_item_sk = i_item_sk
GROUP BY i_item_id, i_item_desc, i_current_price
ORDER BY i_item_id, i_item_desc, i_current_price
LIMIT 100
