-- Catalog sales by place, for some places or high prices.
SELECT ca_zip, sum(cs_sales_price) AS sales
FROM catalog_sales, customer, customer_address, date_dim
WHERE
  cs_bill_customer_sk = c_customer_sk
  AND c_current_addr_sk = ca_address_sk
  AND (
    substring(ca_zip, 1, 5) IN ('35709', '31904', '38059', '24128')
    OR ca_state IN ('GA', 'KY')
    OR cs_sales_price > 150
  )
  AND cs_sold_date_sk = d_date_sk
  AND d_qoy = 1
  AND d_year = 2000
GROUP BY ca_zip
ORDER BY ca_zip
LIMIT 100
