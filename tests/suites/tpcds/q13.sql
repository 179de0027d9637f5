-- Average sales under three alternatives of people and of places.
-- adapted: wider prices and profits.
SELECT
  avg(ss_quantity) AS quantity,
  avg(ss_ext_sales_price) AS sales_price,
  avg(ss_ext_wholesale_cost) AS wholesale_cost,
  sum(ss_ext_wholesale_cost) AS total_wholesale_cost
FROM store_sales, store, customer_demographics, household_demographics, customer_address, date_dim
WHERE
  s_store_sk = ss_store_sk
  AND ss_sold_date_sk = d_date_sk
  AND d_year = 2000
  AND (
    (
      ss_hdemo_sk = hd_demo_sk
      AND cd_demo_sk = ss_cdemo_sk
      AND cd_marital_status = 'M'
      AND cd_education_status = 'Advanced Degree'
      AND ss_sales_price BETWEEN 10.00 AND 150.00
      AND hd_dep_count >= 1
    )
    OR (
      ss_hdemo_sk = hd_demo_sk
      AND cd_demo_sk = ss_cdemo_sk
      AND cd_marital_status = 'S'
      AND cd_education_status = 'College'
      AND ss_sales_price BETWEEN 5.00 AND 100.00
      AND hd_dep_count >= 1
    )
    OR (
      ss_hdemo_sk = hd_demo_sk
      AND cd_demo_sk = ss_cdemo_sk
      AND cd_marital_status = 'W'
      AND cd_education_status = '2 yr Degree'
      AND ss_sales_price BETWEEN 15.00 AND 200.00
      AND hd_dep_count >= 1
    )
  )
  AND (
    (
      ss_addr_sk = ca_address_sk
      AND ca_country = 'United States'
      AND ca_state IN ('TX', 'OH')
      AND ss_net_profit BETWEEN -1000 AND 2000
    )
    OR (
      ss_addr_sk = ca_address_sk
      AND ca_country = 'United States'
      AND ca_state IN ('GA', 'KY')
      AND ss_net_profit BETWEEN -500 AND 3000
    )
    OR (
      ss_addr_sk = ca_address_sk
      AND ca_country = 'United States'
      AND ca_state IN ('IN', 'TN')
      AND ss_net_profit BETWEEN -2000 AND 2500
    )
  )
