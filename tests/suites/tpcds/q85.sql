-- Average web sales and refunds by reason, under alternatives of people and of places.
-- adapted: more states and wider profits; the reason makes the order total.
SELECT
  substring(r_reason_desc, 1, 20) AS reason_desc,
  avg(ws_quantity) AS quantity,
  avg(wr_refunded_cash) AS refunded_cash,
  avg(wr_fee) AS fee
FROM
  web_sales,
  web_returns,
  web_page,
  customer_demographics cd1,
  customer_demographics cd2,
  customer_address,
  date_dim,
  reason
WHERE
  ws_web_page_sk = wp_web_page_sk
  AND ws_item_sk = wr_item_sk
  AND ws_order_number = wr_order_number
  AND ws_sold_date_sk = d_date_sk
  AND d_year = 2000
  AND cd1.cd_demo_sk = wr_refunded_cdemo_sk
  AND cd2.cd_demo_sk = wr_returning_cdemo_sk
  AND ca_address_sk = wr_refunded_addr_sk
  AND r_reason_sk = wr_reason_sk
  AND (
    (
      cd1.cd_marital_status = 'M'
      AND cd1.cd_marital_status = cd2.cd_marital_status
      AND cd1.cd_education_status = 'Advanced Degree'
      AND cd1.cd_education_status = cd2.cd_education_status
      AND ws_sales_price BETWEEN 10.00 AND 150.00
    )
    OR (
      cd1.cd_marital_status = 'S'
      AND cd1.cd_marital_status = cd2.cd_marital_status
      AND cd1.cd_education_status = 'College'
      AND cd1.cd_education_status = cd2.cd_education_status
      AND ws_sales_price BETWEEN 5.00 AND 100.00
    )
    OR (
      cd1.cd_marital_status = 'W'
      AND cd1.cd_marital_status = cd2.cd_marital_status
      AND cd1.cd_education_status = '2 yr Degree'
      AND cd1.cd_education_status = cd2.cd_education_status
      AND ws_sales_price BETWEEN 15.00 AND 200.00
    )
  )
  AND (
    (
      ca_country = 'United States'
      AND ca_state IN ('IN', 'OH')
      AND ws_net_profit BETWEEN -1000 AND 2000
    )
    OR (
      ca_country = 'United States'
      AND ca_state IN ('GA', 'KY')
      AND ws_net_profit BETWEEN -1500 AND 3000
    )
    OR (
      ca_country = 'United States'
      AND ca_state IN ('TN', 'TX')
      AND ws_net_profit BETWEEN -500 AND 2500
    )
  )
GROUP BY r_reason_desc
ORDER BY reason_desc, quantity, refunded_cash, fee
LIMIT 100
